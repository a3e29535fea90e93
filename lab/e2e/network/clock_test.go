//go:build linux

package network

import (
	"bytes"
	"crypto/tls"
	"encoding/json"
	"net"
	"net/http"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/u-root/mkuimage/cpio"

	"ironroot/internal/test/testenv"
	"ironroot/lab/e2e/rig"
	"ironroot/lab/qemu"
	"ironroot/netboot/sntp/sntptest"
)

// TestWrongClock boots a machine whose hardware clock is in 2010, on a network whose time servers all send invalid
// times at first. The agent verifies Ironic's certificate, which by that clock becomes valid sixteen years later:
// Ironic's Date sets both clocks. Then a time server, reached by IPv6, sends a plausible time, and the machine
// restarts: its system clock is kept, and the hardware clock is set to Ironic's last Date, after run_image and after
// power_off.
//
// Parity: E3, R4
func TestWrongClock(t *testing.T) {
	t.Parallel()
	const mac = "52:54:00:e2:e0:41"
	s := rig.NewSite(t)
	netdev := s.Tap("lab", "192.0.2.1/24", "192.0.2.2/24", "192.0.2.3/24", "192.0.2.4/24", "192.0.2.5/24",
		"192.0.2.6/24", "192.0.2.7/24", "2001:db8::8/64")
	nonsense := map[string]sntptest.Reply{
		"192.0.2.2": {Kiss: "RATE"}, "192.0.2.3": {At: time.Unix(86400, 0)},
		"192.0.2.4": {At: time.Date(2100, 2, 3, 0, 0, 0, 0, time.UTC)}, "192.0.2.5": {Stratum: 16},
		"192.0.2.6": {OtherOrigin: true}, "192.0.2.7": {At: time.Date(2019, 1, 1, 0, 0, 0, 0, time.UTC)},
		"2001:db8::8": {Unsynced: true},
	}
	servers := map[string]*sntptest.Server{}
	for address, reply := range nonsense {
		servers[address] = timeServer(s, address, reply)
	}
	s.Dnsmasq("--interface=lab", "--enable-ra", "--dhcp-range=192.0.2.10,192.0.2.20,1h",
		"--dhcp-range=2001:db8::,ra-stateless",
		"--dhcp-option=option:ntp-server,192.0.2.2,192.0.2.3,192.0.2.4,192.0.2.5,192.0.2.6,192.0.2.7",
		"--dhcp-option=option6:ntp-server,[2001:db8::8]")
	s.StartIronic(netip.MustParseAddr("192.0.2.1"), mac, 10*time.Second)
	s.BootAs(qemu.Config{
		NICs: []qemu.NIC{{MAC: mac, Netdev: netdev}}, Extra: []string{"-rtc", "base=2010-05-04T03:02:01,clock=host"},
		Initrd: trusting(s, s.Ironic.CertificatePEM()), OnPowerOff: qemu.Pause,
	}, "ipa-api-url="+s.Ironic.URL())
	s.WaitAgent(t)
	t.Run("no time server", func(t *testing.T) {
		for server, why := range map[string]string{
			"192.0.2.2": "RATE", "192.0.2.3": "1970-01-02", "192.0.2.4": "2100-02-03", "192.0.2.5": "stratum 16",
			"192.0.2.6": "match",
			"192.0.2.7": "2019-01-01",
		} {
			s.Follow(t, `time server not used.*server=`+server+` .*`+why)
		}
		s.Follow(t, `clock was implausible, set from Ironic's time`)
		s.Follow(t, `hardware clock set from Ironic's time was=2010-05-04`)
		checkClock(t, s, 0)
		checkHardwareClock(t, s, 0)
		answers(t, s) // Ironic verifies the agent's certificate
	})
	const ahead, further = 20 * time.Minute, 40 * time.Minute // of an hour by which certificates are backdated
	t.Run("before the restart", func(t *testing.T) {
		servers["2001:db8::8"].Set(sntptest.Reply{Ahead: 5 * time.Hour})
		moveIronicsClock(t, s, ahead)
		if _, err := s.Node.Command(rig.Soon(t), "standby.run_image", nil, false); err != nil {
			t.Fatal(err)
		}
		if _, err := s.Machine.WaitEvent(rig.Soon(t), "RESET", 1); err != nil {
			t.Fatal(err)
		}
		checkHardwareClock(t, s, ahead)
	})
	t.Run("after the restart", func(t *testing.T) {
		asked := servers["2001:db8::8"].Asked()
		s.Node.Rebooted()
		s.WaitAgent(t)
		checkClock(t, s, ahead)
		checkHardwareClock(t, s, ahead)
		if now := servers["2001:db8::8"].Asked(); now != asked {
			t.Errorf("the network's time server was asked %d times, though the clock could be right", now-asked)
		}
	})
	t.Run("before the power-off", func(t *testing.T) {
		moveIronicsClock(t, s, further)
		powerOff(t, s)
		checkHardwareClock(t, s, further)
	})
}

// TestNamedTimeServer boots a machine with a wrong hardware clock and ipa-ntp-server. This server sets both clocks at
// the start, and the hardware clock again before the power-off. The times of DHCP's servers, and of Ironic, which is
// not verified, are ignored.
//
// Parity: E3, R4
func TestNamedTimeServer(t *testing.T) {
	t.Parallel()
	const mac = "52:54:00:e2:e0:42"
	s := rig.NewSite(t)
	netdev := s.Tap("lab", "192.0.2.1/24", "192.0.2.2/24", "192.0.2.3/24")
	named := timeServer(s, "192.0.2.2", sntptest.Reply{Ahead: 20 * time.Minute})
	other := timeServer(s, "192.0.2.3", sntptest.Reply{Ahead: 5 * time.Hour})
	s.Dnsmasq("--interface=lab", "--dhcp-range=192.0.2.10,192.0.2.20,1h", "--dhcp-option=option:ntp-server,192.0.2.3")
	s.StartIronic(netip.MustParseAddr("192.0.2.1"), mac, 10*time.Second)
	s.Ironic.SetDate(func() time.Time { return time.Now().Add(6 * time.Hour) })
	s.BootAs(qemu.Config{
		NICs: []qemu.NIC{{MAC: mac, Netdev: netdev}}, Extra: []string{"-rtc", "base=2010-05-04T03:02:01,clock=host"},
		OnPowerOff: qemu.Pause,
	}, "ipa-insecure=1 ipa-ntp-server=192.0.2.2 ipa-api-url="+s.Ironic.URL())
	s.WaitAgent(t)
	s.Follow(t, `clock set server=192.0.2.2`)
	checkClock(t, s, 20*time.Minute)
	checkHardwareClock(t, s, 20*time.Minute)
	named.Set(sntptest.Reply{Ahead: 40 * time.Minute})
	powerOff(t, s)
	checkHardwareClock(t, s, 40*time.Minute)
	if n := other.Asked(); n != 0 {
		t.Errorf("DHCP's time server was asked %d times, want never", n)
	}
}

// timeServer starts a time server at an address of the namespace.
func timeServer(s *rig.Site, address string, reply sntptest.Reply) *sntptest.Server {
	s.T.Helper()
	conn, err := s.NS.ListenPacket(s.T.Context(), "udp", net.JoinHostPort(address, "123"))
	if err != nil {
		s.T.Fatal(err)
	}
	return sntptest.Serve(s.T, conn, reply)
}

// moveIronicsClock changes the Date of Ironic's replies and waits until the agent has read it.
func moveIronicsClock(t *testing.T, s *rig.Site, ahead time.Duration) {
	t.Helper()
	requests := make(chan struct{}, 2) // the agent sends the second after it has read the first reply
	s.Ironic.SetDate(func() time.Time {
		select {
		case requests <- struct{}{}:
		default:
		}
		return time.Now().Add(ahead)
	})
	for range cap(requests) + 1 {
		select {
		case <-requests:
		case <-rig.Soon(t).Done():
			t.Fatal("the agent sends no request to Ironic")
		}
	}
}

// powerOff requests power-off from the agent. QEMU then pauses.
func powerOff(t *testing.T, s *rig.Site) {
	t.Helper()
	if _, err := s.Node.Command(rig.Soon(t), "standby.power_off", nil, false); err != nil {
		t.Fatal(err)
	}
	event, err := s.Machine.WaitEvent(rig.Soon(t), "SHUTDOWN", 1)
	if err != nil {
		t.Fatal(err)
	}
	rig.CheckFromGuest(t, event)
}

// trusting returns a ramdisk whose configuration verifies Ironic with the certificate.
func trusting(s *rig.Site, certificate []byte) string {
	s.T.Helper()
	return initramfsWith(s,
		cpio.StaticFile("etc/ironic.pem", string(certificate), 0o644),
		cpio.StaticFile("etc/ironic-python-agent.d/ca.conf", "[DEFAULT]\ncafile = /etc/ironic.pem\n", 0o644))
}

// initramfsWith returns the built ramdisk with an appended archive, which contains configuration in /etc.
func initramfsWith(s *rig.Site, files ...cpio.Record) string {
	s.T.Helper()
	initramfs, err := os.ReadFile(testenv.Build(s.T, "ipa-ironroot-amd64.initramfs"))
	if err != nil {
		s.T.Fatal(err)
	}
	format, err := cpio.Format("newc")
	if err != nil {
		s.T.Fatal(err)
	}
	joined := bytes.NewBuffer(append(initramfs, make([]byte, -len(initramfs)&3)...))
	start := joined.Len()
	w := format.Writer(joined)
	directories := []cpio.Record{cpio.Directory("etc", 0o755), cpio.Directory("etc/ironic-python-agent.d", 0o755)}
	for _, record := range append(directories, files...) {
		if err := w.WriteRecord(record); err != nil {
			s.T.Fatal(err)
		}
	}
	if err := cpio.WriteTrailer(w); err != nil || joined.Len() == start {
		s.T.Fatal(err)
	}
	path := filepath.Join(s.T.TempDir(), "initramfs")
	if err := os.WriteFile(path, joined.Bytes(), 0o600); err != nil {
		s.T.Fatal(err)
	}
	return path
}

// hardwareClock returns the time of the machine's real-time clock.
func hardwareClock(t *testing.T, s *rig.Site) time.Time {
	t.Helper()
	answer, err := s.Machine.QMP(rig.Soon(t), "qom-get", map[string]any{"path": "/machine", "property": "rtc-time"})
	if err != nil {
		t.Fatal(err)
	}
	var tm struct {
		Year   int `json:"tm_year"`
		Month  int `json:"tm_mon"`
		Day    int `json:"tm_mday"`
		Hour   int `json:"tm_hour"`
		Minute int `json:"tm_min"`
		Second int `json:"tm_sec"`
	}
	if err := json.Unmarshal(answer, &tm); err != nil {
		t.Fatal(err)
	}
	return time.Date(tm.Year+1900, time.Month(tm.Month+1), tm.Day, tm.Hour, tm.Minute, tm.Second, 0, time.UTC)
}

// checkHardwareClock compares the machine's real-time clock with the host's clock.
func checkHardwareClock(t *testing.T, s *rig.Site, ahead time.Duration) {
	t.Helper()
	if off := time.Until(hardwareClock(t, s)) - ahead; off.Abs() > rig.ClockTolerance {
		t.Errorf("the hardware clock is %v off", off)
	}
}

// checkClock compares the agent's clock, read from the Date header of its replies, with the host's clock.
func checkClock(t *testing.T, s *rig.Site, ahead time.Duration) {
	t.Helper()
	client := &http.Client{Transport: &http.Transport{
		DialContext:     s.NS.DialContext,
		TLSClientConfig: &tls.Config{InsecureSkipVerify: true, MinVersion: tls.VersionTLS13},
	}}
	defer client.CloseIdleConnections()
	url, _ := s.Node.Callback()
	request, err := http.NewRequestWithContext(rig.Soon(t), http.MethodGet, url+"/v1/status", nil)
	if err != nil {
		t.Fatal(err)
	}
	answer, err := client.Do(request)
	if err != nil {
		t.Fatal(err)
	}
	_ = answer.Body.Close()
	now, err := http.ParseTime(answer.Header.Get("Date"))
	if off := time.Until(now) - ahead; err != nil || off.Abs() > rig.ClockTolerance {
		t.Errorf("the agent's clock says %s (%v), which is %v off",
			strings.TrimSpace(answer.Header.Get("Date")), err, off)
	}
}
