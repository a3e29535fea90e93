//go:build linux

package boot_test

import (
	"encoding/hex"
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"testing"
	"time"

	"ironroot/lab/qemu"
)

// A machine with one NIC on a cable whose other end speaks LLDP, and one that leads to Ironic and is silent about it:
// what the inspection posts has the frame's TLVs for the one and an empty list for the other, by the collector and in
// the inventory, and the console names the neighbour.
//
// Parity: H9
func TestInspectionHearsLLDP(t *testing.T) {
	posted := make(chan map[string]json.RawMessage, 1)
	ironic := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		var data map[string]json.RawMessage
		if err := json.NewDecoder(r.Body).Decode(&data); err != nil {
			t.Errorf("posted data: %v", err)
		}
		select {
		case posted <- data:
		default:
		}
		if _, err := fmt.Fprint(w, `{"uuid": "b77a8c26-0000-4000-8000-000000000000"}`); err != nil {
			t.Errorf("answer: %v", err)
		}
	}))
	defer ironic.Close()
	_, port, err := net.SplitHostPort(ironic.Listener.Addr().String())
	if err != nil {
		t.Fatal(err)
	}

	// The ends of the cable are Unix sockets: QEMU's dgram back end sends and takes bare Ethernet frames.
	cable := t.TempDir()
	guest := &net.UnixAddr{Net: "unixgram", Name: filepath.Join(cable, "guest")}
	sw, err := net.ListenUnixgram("unixgram", &net.UnixAddr{Net: "unixgram", Name: filepath.Join(cable, "switch")})
	if err != nil {
		t.Fatal(err)
	}
	defer sw.Close()
	speakLLDP(t, sw, guest)

	m := start(t, delivered(t), "ipa-inspection-callback-url=http://10.0.2.2:"+port+"/v1/continue_inspection "+
		"ipa-inspection-collectors=default,lldp ipa-collect-lldp=1 ipa-lldp-timeout=20 ipa-disk-wait-attempts=1 "+
		"ipa-disk-wait-delay=1",
		func(c *qemu.Config) {
			c.Memory = 768 << 20
			c.NICs = []qemu.NIC{
				{MAC: "52:54:00:00:00:01", Netdev: "dgram,local.type=unix,local.path=" + guest.Name +
					",remote.type=unix,remote.path=" + sw.LocalAddr().String()},
				{MAC: "52:54:00:00:00:02"},
			}
		})
	expect(t, m, `LLDP neighbour found.*interface=\S+ .*system=leaf1\.example\.org.*port=02:00:00:00:00:01`)
	var data map[string]json.RawMessage
	select {
	case data = <-posted:
	case <-time.After(machineTimeout):
		t.Fatalf("nothing posted; the console ends with\n%s", m.Console().Tail(30))
	}
	var raw map[string]json.RawMessage
	var inv struct {
		Interfaces []struct {
			Name string
			MAC  string `json:"mac_address"`
			LLDP json.RawMessage
		}
	}
	if err := json.Unmarshal(data["lldp_raw"], &raw); err != nil {
		t.Fatalf("lldp_raw: %v", err)
	}
	if err := json.Unmarshal(data["inventory"], &inv); err != nil {
		t.Fatalf("inventory: %v", err)
	}
	if len(raw) != 2 || len(inv.Interfaces) != 2 {
		t.Errorf("got %d interfaces in lldp_raw and %d in the inventory, want 2 and 2", len(raw), len(inv.Interfaces))
	}
	for _, i := range inv.Interfaces {
		want := `[]`
		if i.MAC == "52:54:00:00:00:01" {
			want = lldpTLVs
		}
		if string(i.LLDP) != want || string(raw[i.Name]) != want {
			t.Errorf("%s: got %s in the inventory and %s in lldp_raw, want %s", i.MAC, i.LLDP, raw[i.Name], want)
		}
	}
}

// lldpFrame is one of lldpd 1.0.16, shortened; lldpTLVs are its TLVs in the protocol's form.
const (
	lldpFrame = "0180c200000e02000000000188cc" + "020704020000000001" + "040703020000000001" + "06020078" +
		"0a116c656166312e6578616d706c652e6f7267" + "fe0900120f010080000036" + "0000"
	lldpTLVs = `[[1,"04020000000001"],[2,"03020000000001"],[3,"0078"],[5,"6c656166312e6578616d706c652e6f7267"],` +
		`[127,"00120f010080000036"],[0,""]]`
)

// speakLLDP sends the frame to the guest's end of the cable until the test ends.
func speakLLDP(t *testing.T, sw *net.UnixConn, guest *net.UnixAddr) {
	t.Helper()
	frame, err := hex.DecodeString(lldpFrame)
	if err != nil {
		t.Fatal(err)
	}
	stop, ended := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(ended)
		tick := time.NewTicker(500 * time.Millisecond)
		defer tick.Stop()
		for {
			// Until the machine runs nobody listens there, and the kernel says so.
			_, _ = sw.WriteToUnix(frame, guest)
			select {
			case <-tick.C:
			case <-stop:
				return
			}
		}
	}()
	t.Cleanup(func() {
		close(stop)
		<-ended
	})
}
