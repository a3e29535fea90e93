//go:build linux

package media

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"ironroot/lab/conductor"
	"ironroot/lab/e2e/rig"
	"ironroot/lab/netns"
	"ironroot/lab/qemu"
)

// TestAlone boots a machine without disks and without an address of Ironic. One card is on QEMU's own network (IPv4),
// one on a cable without any server (IPv6 link-local addresses). Configuration with secrets comes from an appended
// archive, virtual media, and a RAM disk of the firmware.
//
// Parity: B19, A13
func TestAlone(t *testing.T) {
	t.Parallel()
	const cableMAC = "52:54:00:e2:e0:02"
	ns := rig.NewNamespace(t)
	if err := ns.Tap("cable"); err != nil {
		t.Fatal(err)
	}
	dumps := []rig.Capture{
		{Path: filepath.Join(t.TempDir(), "user.pcap")}, {Path: filepath.Join(t.TempDir(), "cable.pcap")},
	}
	token := conductor.NewToken()
	p := plant()
	r := rig.Start(t, rig.Setup{
		NoIronic: true, LateIronic: true, Token: token, Namespace: ns,
		Append:  "ipa-disk-wait-attempts=1 ipa-disk-wait-delay=1 ironroot.shell=1 " + p.parameters(),
		Prepare: func(_ *rig.Rig, c *qemu.Config) { p.attach(t, c) },
		Machine: qemu.Config{
			Memory: 336 * rig.MiB,
			NICs:   []qemu.NIC{{MAC: cableMAC, Netdev: "tap,ifname=cable,script=no,downscript=no,vnet_hdr=off"}},
			Extra:  append(dumps[0].Arguments(0), dumps[1].Arguments(1)...),
		},
	})
	r.Secrets = append(append(r.Secrets, token), p.secrets()...)
	ctx := rig.Soon(t)
	if _, err := r.Machine.Console().Follow(ctx, regexp.MustCompile("API listening")); err != nil {
		t.Fatal(err)
	}
	t.Run("token", func(t *testing.T) { alone(t, r, token) })
	t.Run("no disk", func(t *testing.T) {
		status, answer := r.Call(t, http.MethodPost, token, `{"name": "standby.prepare_image", "params": {"image_info":
			{"id": "i", "urls": ["http://10.0.2.2:1/i"], "checksum": "`+strings.Repeat("0", 64)+
			`", "disk_format": "raw", "stream_raw_images": true}}}`)
		if status != http.StatusOK || !strings.Contains(answer, `"DeviceNotFound"`) ||
			!strings.Contains(answer, "no suitable disk") {
			t.Errorf("got %d %s, want a DeviceNotFound that says that there is no disk", status, answer)
		}
		rig.WaitConsole(t, r.Machine, `WARN .*no root disk appeared in time .*limit=1s`)
	})
	t.Run("secrets", func(t *testing.T) { r.SearchGuest(t, token) })
	t.Run("IPv6", func(t *testing.T) {
		address := net.JoinHostPort(linkLocal(t, cableMAC).WithZone("cable").String(), fmt.Sprint(rig.AgentPort))
		reach(t, ns, address)
	})
	t.Run("nothing goes out", func(t *testing.T) {
		allowed := []string{
			"arp", "ip4 udp to port 67", "ip6 icmp6", "ip4 protocol 2", "ip4 tcp from port 9999",
			"ip6 tcp from port 9999",
		}
		for i, mac := range []string{rig.NodeMAC, cableMAC} {
			packets := dumps[i].Sent(t, mac)
			if !slices.Contains(packets, []string{"ip4 tcp from port 9999", "ip6 tcp from port 9999"}[i]) {
				t.Errorf("interface %d: the capture lacks the API's answers: %q", i, packets)
			}
			for _, p := range packets {
				if !slices.Contains(allowed, p) {
					t.Errorf("interface %d sent %q", i, p)
				}
			}
		}
	})
	t.Run("rescue", func(t *testing.T) { rescue(t, r, token, p) })
	if !r.Machine.Running() || strings.Contains(r.Machine.Console().String(), "panic") {
		t.Error("the machine did not go on")
	}
}

// alone checks that the API requires the token.
func alone(t *testing.T, r *rig.Rig, token string) {
	for given, want := range map[string]int{
		"": http.StatusUnauthorized, "wrong": http.StatusUnauthorized, token: http.StatusOK,
	} {
		status, answer := r.Call(t, http.MethodGet, given, "")
		if status != want {
			t.Errorf("got %d %s, want %d", status, answer, want)
		}
	}
}

// reach requests the API's status at an address of the cable until it replies, because a new address is not usable at
// once.
func reach(t *testing.T, ns *netns.Namespace, address string) {
	t.Helper()
	client := &http.Client{
		Transport: &http.Transport{DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
			return ns.DialContext(ctx, "tcp6", address)
		}},
	}
	defer client.CloseIdleConnections()
	ctx := rig.Soon(t)
	for {
		request, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://agent/v1/status", nil)
		if err != nil {
			t.Fatal(err)
		}
		response, err := client.Do(request)
		if err == nil {
			text, err := io.ReadAll(response.Body)
			_ = response.Body.Close()
			if err != nil || response.StatusCode != http.StatusOK || !strings.Contains(string(text), "started_at") {
				t.Errorf("got %d %q and %v, want the status", response.StatusCode, text, err)
			}
			return
		}
		select {
		case <-time.After(200 * time.Millisecond):
		case <-ctx.Done():
			t.Fatalf("%v: %v", context.Cause(ctx), err)
		}
	}
}

// linkLocal returns the IPv6 link-local address of an interface with the MAC address (RFC 4291, appendix A).
func linkLocal(t *testing.T, mac string) netip.Addr {
	t.Helper()
	m, err := net.ParseMAC(mac)
	if err != nil {
		t.Fatal(err)
	}
	return netip.AddrFrom16([16]byte{0xfe, 0x80, 8: m[0] ^ 2, m[1], m[2], 0xff, 0xfe, m[3], m[4], m[5]})
}
