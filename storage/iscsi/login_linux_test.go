package iscsi

import (
	"context"
	"encoding/binary"
	"errors"
	"io"
	"net"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"ironroot/internal/test/testenv"
)

// wire sends and receives PDUs on a TCP connection, as the kernel does.
type wire struct {
	net.Conn

	number uint32 // CmdSN
}

func (w wire) send(_ context.Context, h header, data []byte) error {
	binary.BigEndian.PutUint32(h[24:], w.number)
	_, err := w.Write(append(append(h[:], data...), make([]byte, -len(data)&3)...))
	return err
}

func (w wire) receive(context.Context) (h header, data []byte, err error) {
	if _, err := io.ReadFull(w, h[:]); err != nil {
		return h, nil, err
	}
	data = make([]byte, (min(dataLength(h), 1<<20)+3)&^3)
	_, err = io.ReadFull(w, data)
	return h, data, err
}

// tryLogin logs in to a target at an address.
func tryLogin(t *testing.T, address netip.AddrPort, c CHAP) (parameters, error) {
	t.Helper()
	conn, err := new(net.Dialer).DialContext(t.Context(), "tcp", address.String())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	if err := conn.SetDeadline(time.Now().Add(time.Minute)); err != nil {
		t.Fatal(err)
	}
	return logIn(t.Context(), wire{conn, 1},
		Target{Name: diskName, Initiator: nodeName, Address: address, CHAP: c})
}

// The login agrees with Debian's target, with CHAP in no, one and both directions.
func TestLogin(t *testing.T) {
	plain := testenv.StartISCSI(t, testenv.ISCSITarget{Name: diskName})
	oneWay := testenv.StartISCSI(t, testenv.ISCSITarget{Name: diskName, User: "node", Secret: "secret-of-node"})
	mutual := testenv.StartISCSI(t, testenv.ISCSITarget{
		Name: diskName, User: "node", Secret: "secret-of-node", TargetUser: "disk", TargetSecret: "secret-of-disk",
	})
	rejected := "authentication failed"
	for name, c := range map[string]struct {
		target *testenv.ISCSITarget
		chap   CHAP
		err    string
	}{
		"no CHAP":         {plain, CHAP{}, ""},
		"CHAP not needed": {plain, CHAP{Name: "node", Secret: "secret-of-node"}, ""},
		"mutual CHAP, but the target has none": {
			plain, CHAP{"node", "secret-of-node", "disk", "secret-of-disk"}, "log in to",
		},
		"CHAP":                 {oneWay, CHAP{Name: "node", Secret: "secret-of-node"}, ""},
		"CHAP without secret":  {oneWay, CHAP{}, rejected},
		"CHAP, wrong secret":   {oneWay, CHAP{Name: "node", Secret: "secret-of-nobody"}, rejected},
		"CHAP, wrong name":     {oneWay, CHAP{Name: "nobody", Secret: "secret-of-node"}, rejected},
		"mutual CHAP":          {mutual, CHAP{"node", "secret-of-node", "disk", "secret-of-disk"}, ""},
		"mutual CHAP, no name": {mutual, CHAP{"node", "secret-of-node", "", "secret-of-disk"}, ""},
		"mutual CHAP, wrong node": {
			mutual, CHAP{"node", "secret-of-nobody", "disk", "secret-of-disk"}, rejected,
		},
		"mutual CHAP, wrong disk": {
			mutual, CHAP{"node", "secret-of-node", "disk", "other"}, errTargetUnknown.Error(),
		},
		"mutual CHAP, wrong name": {
			mutual, CHAP{"node", "secret-of-node", "other", "secret-of-disk"}, `want "other"`,
		},
		"mutual CHAP, the same secret": {
			mutual, CHAP{"node", "secret-of-node", "disk", "secret-of-node"}, errSameSecret.Error(),
		},
		"mutual CHAP, without the first": {
			mutual, CHAP{"", "", "disk", "secret-of-disk"}, "without one of the initiator",
		},
	} {
		t.Run(name, func(t *testing.T) {
			got, err := tryLogin(t, c.target.Address, c.chap)
			if c.err == "" != (err == nil) || err != nil && !strings.Contains(err.Error(), c.err) {
				t.Fatalf("got %v, want error %q", err, c.err)
			}
			if err != nil {
				for _, secret := range []string{c.chap.Secret, c.chap.TargetSecret} {
					if secret != "" && strings.Contains(err.Error(), secret) {
						t.Errorf("error %v contains a secret", err)
					}
				}
				return
			}
			if got.expStatSN == 0 {
				t.Errorf("got no status number")
			}
			got.expStatSN = 0
			// The target's defaults (iscsi/target.c of tgt).
			want := parameters{
				maxSend: 8192, firstBurst: 65536, maxBurst: 262144, initialR2T: true, immediateData: true, maxR2T: 1,
				group: 1,
			}
			if diff := cmp.Diff(want, got, cmp.AllowUnexported(parameters{})); diff != "" {
				t.Errorf("parameters (-want +got):\n%s", diff)
			}
		})
	}
	t.Run("unknown target", func(t *testing.T) {
		conn, err := new(net.Dialer).DialContext(t.Context(), "tcp", plain.Address.String())
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close()
		_, err = logIn(t.Context(), wire{conn, 1}, Target{Name: diskName + "2", Initiator: nodeName})
		var rejected *LoginError
		if !errors.As(err, &rejected) || !rejected.Permanent() || rejected.Class != 2 || rejected.Detail != 3 {
			t.Errorf("got %v, want status 0x0203", err)
		}
	})
}
