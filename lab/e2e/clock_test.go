package e2e

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

	"ironroot/internal/testenv"
	"ironroot/lab/qemu"
	"ironroot/netboot/sntp/sntptest"
)

// near is how far two clocks may be apart that are the same: that of a guest loses half of its seconds where the machine
// below it is busy while it starts.
const near = 2 * time.Minute

// TestWrongClock boots a machine whose hardware clock stands in 2010, on a network whose time servers all talk nonsense
// at first. It verifies Ironic, whose certificate will be valid sixteen years later by that clock. Then one time server,
// by IPv6, comes to its senses, and the machine restarts.
//
// Parity: R4
func TestWrongClock(t *testing.T) {
	const mac = "52:54:00:e2:e0:41"
	s := newSite(t)
	netdev := s.tap("lab", "192.0.2.1/24", "192.0.2.2/24", "192.0.2.3/24", "192.0.2.4/24", "192.0.2.5/24", "192.0.2.6/24", "192.0.2.7/24", "2001:db8::8/64")
	nonsense := map[string]sntptest.Reply{
		"192.0.2.2": {Kiss: "RATE"}, "192.0.2.3": {At: time.Unix(86400, 0)}, "192.0.2.4": {At: time.Date(2100, 2, 3, 0, 0, 0, 0, time.UTC)},
		"192.0.2.5": {Stratum: 16}, "192.0.2.6": {OtherOrigin: true}, "192.0.2.7": {At: time.Date(2019, 1, 1, 0, 0, 0, 0, time.UTC)},
		"2001:db8::8": {Unsynced: true},
	}
	servers := map[string]*sntptest.Server{}
	for address, reply := range nonsense {
		conn, err := s.ns.ListenPacket(t.Context(), "udp", net.JoinHostPort(address, "123"))
		if err != nil {
			t.Fatal(err)
		}
		servers[address] = sntptest.Serve(t, conn, reply)
	}
	s.dnsmasq("--interface=lab", "--enable-ra", "--dhcp-range=192.0.2.10,192.0.2.20,1h", "--dhcp-range=2001:db8::,ra-stateless",
		"--dhcp-option=option:ntp-server,192.0.2.2,192.0.2.3,192.0.2.4,192.0.2.5,192.0.2.6,192.0.2.7", "--dhcp-option=option6:ntp-server,[2001:db8::8]")
	s.startIronic(netip.MustParseAddr("192.0.2.1"), mac, time.Minute)
	s.bootAs(qemu.Config{
		NICs: []qemu.NIC{{MAC: mac, Netdev: netdev}}, Extra: []string{"-rtc", "base=2010-05-04T03:02:01,clock=host"},
		Initrd: s.trusting(s.ironic.CertificatePEM()),
	}, "ipa-api-url="+s.ironic.URL())
	s.waitAgent(t)
	if year := s.hardwareClock(t).Year(); year != 2010 {
		t.Errorf("the machine's hardware clock stands in %d, want 2010", year)
	}
	t.Run("no time server", func(t *testing.T) {
		for server, why := range map[string]string{
			"192.0.2.2": "RATE", "192.0.2.3": "1970-01-02", "192.0.2.4": "2100-02-03", "192.0.2.5": "stratum 16", "192.0.2.6": "match",
			"192.0.2.7": "2019-01-01",
		} {
			s.follow(t, `time server is not followed.*server=`+server+` .*`+why)
		}
		s.follow(t, `clock was wrong and was set by Ironic's`)
		s.checkClock(t, 0)
		s.answers(t) // Ironic verifies the agent's certificate
	})
	const ahead = 30 * time.Minute // half of what certificates are dated back by
	t.Run("before the restart", func(t *testing.T) {
		servers["2001:db8::8"].Set(sntptest.Reply{})
		if _, err := s.node.Command(soon(t), "standby.run_image", nil, false); err != nil {
			t.Fatal(err)
		}
		if _, err := s.machine.WaitEvent(soon(t), "RESET", 1); err != nil {
			t.Fatal(err)
		}
		servers["2001:db8::8"].Set(sntptest.Reply{Ahead: ahead})
		if off := time.Until(s.hardwareClock(t)); off.Abs() > near {
			t.Errorf("the hardware clock is %v off after the restart", off)
		}
	})
	t.Run("after the restart", func(t *testing.T) {
		s.node.Rebooted()
		s.waitAgent(t)
		s.follow(t, `clock set server=2001:db8::8 off_by=(28|29|30|31|32)m`) // the hardware clock was right when it started
		s.checkClock(t, ahead)
		if off := time.Until(s.hardwareClock(t)) - ahead; off.Abs() > near {
			t.Errorf("the hardware clock is %v off after the time server was asked at the start", off)
		}
	})
}

// trusting makes a ramdisk of the built one and an archive that is joined to it, with a configuration that verifies
// Ironic by the certificate.
func (s *site) trusting(certificate []byte) string {
	s.t.Helper()
	initramfs, err := os.ReadFile(testenv.Build(s.t, "ipa-ironroot-amd64.initramfs"))
	if err != nil {
		s.t.Fatal(err)
	}
	format, err := cpio.Format("newc")
	if err != nil {
		s.t.Fatal(err)
	}
	joined := bytes.NewBuffer(append(initramfs, make([]byte, -len(initramfs)&3)...))
	start := joined.Len()
	w := format.Writer(joined)
	for _, record := range []cpio.Record{
		cpio.Directory("etc", 0o755), cpio.Directory("etc/ironic-python-agent.d", 0o755),
		cpio.StaticFile("etc/ironic.pem", string(certificate), 0o644),
		cpio.StaticFile("etc/ironic-python-agent.d/ca.conf", "[DEFAULT]\ncafile = /etc/ironic.pem\n", 0o644),
	} {
		if err := w.WriteRecord(record); err != nil {
			s.t.Fatal(err)
		}
	}
	if err := cpio.WriteTrailer(w); err != nil || joined.Len() == start {
		s.t.Fatal(err)
	}
	path := filepath.Join(s.t.TempDir(), "initramfs")
	if err := os.WriteFile(path, joined.Bytes(), 0o600); err != nil {
		s.t.Fatal(err)
	}
	return path
}

// hardwareClock is what the machine's real-time clock shows.
func (s *site) hardwareClock(t *testing.T) time.Time {
	t.Helper()
	answer, err := s.machine.QMP(soon(t), "qom-get", map[string]any{"path": "/machine", "property": "rtc-time"})
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

// checkClock compares the agent's clock, as the header of its answers shows it, with this machine's.
func (s *site) checkClock(t *testing.T, ahead time.Duration) {
	t.Helper()
	client := &http.Client{Transport: &http.Transport{
		DialContext: s.ns.Dial, TLSClientConfig: &tls.Config{InsecureSkipVerify: true, MinVersion: tls.VersionTLS13},
	}}
	defer client.CloseIdleConnections()
	url, _ := s.node.Callback()
	request, err := http.NewRequestWithContext(soon(t), http.MethodGet, url+"/v1/status", nil)
	if err != nil {
		t.Fatal(err)
	}
	answer, err := client.Do(request)
	if err != nil {
		t.Fatal(err)
	}
	_ = answer.Body.Close()
	now, err := http.ParseTime(answer.Header.Get("Date"))
	if off := time.Until(now) - ahead; err != nil || off.Abs() > near {
		t.Errorf("the agent's clock says %s (%v), which is %v off", strings.TrimSpace(answer.Header.Get("Date")), err, off)
	}
}
