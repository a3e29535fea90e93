package pxe

import (
	"bytes"
	"errors"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/insomniacslk/dhcp/dhcpv4"
	"github.com/insomniacslk/dhcp/dhcpv4/nclient4"
	"github.com/pin/tftp/v3"
	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"ironroot/internal/test/testenv/nettest"
	"ironroot/netboot/server"
)

const secret = "ipa-agent-token=the-secret-of-node-1"

var (
	first  = net.HardwareAddr{2, 0, 0, 0, 0, 1}
	second = net.HardwareAddr{2, 0, 0, 0, 0, 2}
	third  = net.HardwareAddr{2, 0, 0, 0, 0, 3}
)

// options returns options with small files, and two machines of which the first has a secret.
func options(t *testing.T, log io.Writer) Options {
	t.Helper()
	dir := t.TempDir()
	o := Options{
		Log: slog.New(slog.NewTextHandler(io.MultiWriter(log, t.Output()), nil)), Interface: bridge,
		Systems: map[string]System{}, Loaders: map[string][]byte{},
		Machines: []Machine{{MAC: first, Parameters: secret}, {MAC: second}}, searchTime: 2 * time.Second,
	}
	o.Details = o.Log
	for _, arch := range []string{"amd64", "arm64"} {
		s := System{
			Kernel: filepath.Join(dir, arch+".kernel"), Initramfs: filepath.Join(dir, arch+".initramfs"),
			Cmdline: "console=ttyS0 common=" + arch,
		}
		if err := errors.Join(os.WriteFile(s.Kernel, []byte("kernel of "+arch), 0o600),
			os.WriteFile(s.Initramfs, bytes.Repeat([]byte(arch), 10_000), 0o600)); err != nil {
			t.Fatal(err)
		}
		o.Systems[arch] = s
	}
	for _, secure := range []bool{false, true} {
		for _, name := range LoaderNames([]string{"amd64", "arm64"}, secure) {
			o.Loaders[name] = []byte("loader " + name)
		}
	}
	return o
}

func mustStart(t *testing.T, o Options) *Server {
	t.Helper()
	s, err := Start(t.Context(), o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	})
	return s
}

// client is the address of a machine in another namespace, on the same network.
const client = "192.0.2.3"

// cabled creates the network in the namespace of the test, and connects the peer with it.
func cabled(t *testing.T, l *nettest.Lab) {
	t.Helper()
	network(t)
	l.Cable("port1", client+"/24")
	port, err := netlink.LinkByName("port1")
	if err != nil {
		t.Fatal(err)
	}
	attach(t, port)
}

// get fetches a file by HTTP from the peer. It returns "" for one that does not exist.
func get(t *testing.T, l *nettest.Lab, url string) string {
	t.Helper()
	web := &http.Client{Transport: &http.Transport{DisableKeepAlives: true, DialContext: l.Dial}}
	response, err := web.Get(url)
	if err != nil {
		t.Fatal(err)
	}
	defer response.Body.Close()
	body, err := io.ReadAll(response.Body)
	if err != nil {
		t.Fatal(err)
	}
	if response.StatusCode == http.StatusNotFound {
		return ""
	}
	if response.StatusCode != http.StatusOK {
		t.Fatalf("%s: got status %d", url, response.StatusCode)
	}
	return string(body)
}

// A machine gets its own files with its own parameters, and no other machine's. No line of the log contains parameters,
// and a complete start is one line.
func TestFiles(t *testing.T) {
	l, inside := nettest.New(t)
	if !inside {
		return
	}
	cabled(t, l)
	var log nettest.Log
	o := options(t, &log)
	s := mustStart(t, o)
	for path, want := range map[string][]string{
		"02-00-00-00-00-01/amd64.ipxe": {
			"\nkernel " + s.URL() + "02-00-00-00-00-01/kernel-amd64 initrd=initramfs-amd64 console=ttyS0 " +
				"common=amd64 " + secret + " BOOTIF=01-02-00-00-00-00-01 || ",
			"\ninitrd --name initramfs-amd64 " + s.URL() + "02-00-00-00-00-01/initramfs-amd64 || ",
		},
		"02-00-00-00-00-02/arm64.ipxe": {"console=ttyS0 common=arm64 BOOTIF=01-02-00-00-00-00-02 || "},
		"02:00:00:00:00:01/x86_64.cfg": {
			"linux (http," + strings.Trim(strings.TrimPrefix(s.URL(), "http:"), "/") +
				")/02-00-00-00-00-01/kernel-amd64 'console=ttyS0' 'common=amd64' '" + secret + "'",
		},
		"02-00-00-00-00-02/kernel-arm64": {"kernel of arm64"},
		"02-00-00-00-00-02/snponly.efi":  {"loader snponly.efi"},
		"grub/grub.cfg":                  {"configfile /${net_default_mac}/${grub_cpu}.cfg"},
	} {
		got := get(t, l, s.URL()+path)
		for _, text := range want {
			if !strings.Contains(got, text) {
				t.Errorf("%s: got %q, want %q in it", path, got, text)
			}
		}
		if strings.Contains(got, secret) && !strings.Contains(path, "01/") {
			t.Errorf("%s: got the secret of the first machine", path)
		}
		tftpClient, err := tftp.NewClient(net.JoinHostPort(own, "69"))
		if err != nil {
			t.Fatal(err)
		}
		var transfer io.WriterTo
		l.Peer(func() error {
			transfer, err = tftpClient.Receive(path, "octet")
			return err
		})
		var body bytes.Buffer
		if _, err := transfer.WriteTo(&body); err != nil || body.String() != got {
			t.Errorf("%s by TFTP: got %q and %v, want %q", path, body.String(), err, got)
		}
	}
	for _, path := range []string{
		"", "02-00-00-00-00-03/amd64.ipxe", "02-00-00-00-00-01", "02-00-00-00-00-01/", "amd64.ipxe", "kernel-amd64",
		"02-00-00-00-00-01/amd64.kernel", "02-00-00-00-00-01/kernel-", "02-00-00-00-00-01/x/../../kernel-amd64",
		"grub/other.cfg", "02-00-00-00-00-01/02-00-00-00-00-01/kernel-amd64",
	} {
		if got := get(t, l, s.URL()+path); got != "" {
			t.Errorf("%s: got %q, want nothing", path, got)
		}
	}
	if get(t, l, s.URL()+"02-00-00-00-00-01/initramfs-amd64") == "" {
		t.Error("initramfs: got nothing")
	}
	waitLine(t, &log, `msg="machine booted" mac=02:00:00:00:00:01 address=192\.0\.2\.3 `)
	if found, _ := log.Matches("the-secret"); found {
		t.Error("the log contains the secret")
	}
	o.HTTPPort = 1
	if _, err := Start(t.Context(), o); !errors.Is(err, syscall.EADDRINUSE) || !strings.Contains(err.Error(), "tftp") {
		t.Errorf("second server: got %v, want %v of TFTP", err, syscall.EADDRINUSE)
	}
}

// lease requests an address on the other machine's link, as a client with the MAC address. It returns nil if there is
// no answer to the number of messages, which are a second apart.
func lease(t *testing.T, mac net.HardwareAddr, messages int, options ...dhcpv4.Modifier) *dhcpv4.DHCPv4 {
	t.Helper()
	conn, err := nclient4.NewRawUDPConn(otherLink, dhcpv4.ClientPort)
	if err != nil {
		t.Fatal(err)
	}
	client, err := nclient4.NewWithConn(conn, mac, nclient4.WithRetry(messages), nclient4.WithTimeout(time.Second))
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	got, err := client.Request(t.Context(), options...)
	if err != nil {
		return nil
	}
	return got.ACK
}

// Listed machines get addresses and boot files, until another DHCP server appears.
func TestAddresses(t *testing.T) {
	if !nettest.Namespace(t) {
		return
	}
	network(t)
	var log nettest.Log
	o := options(t, &log)
	o.Addresses = &Addresses{
		First: netip.MustParseAddr("192.0.2.10"), Last: netip.MustParseAddr("192.0.2.11"),
		Router: netip.MustParseAddr("192.0.2.254"), DNS: []netip.Addr{netip.MustParseAddr("192.0.2.253")},
	}
	o.searchInterval = 10 * time.Millisecond
	s := mustStart(t, o)
	class := dhcpv4.WithOption(dhcpv4.OptClassIdentifier("PXEClient:Arch:00007:UNDI:003016"))
	uefi := dhcpv4.WithGeneric(dhcpv4.OptionClientSystemArchitectureType, []byte{0, 7})
	ack := lease(t, first, 60, class, uefi) // a busy machine answers late
	if ack == nil {
		t.Fatal("listed machine: got no lease")
	}
	if ack.YourIPAddr.String() != "192.0.2.10" || ack.BootFileNameOption() != "02-00-00-00-00-01/snponly.efi" ||
		ack.Router()[0].String() != "192.0.2.254" || ack.DNS()[0].String() != "192.0.2.253" {
		t.Errorf("listed machine: got %v", ack)
	}
	if ack := lease(t, third, 2, class, uefi); ack != nil {
		t.Errorf("other machine: got %v, want nothing", ack)
	}
	waitLine(t, &log, `msg="machine not served" mac=02:00:00:00:00:03 .*reason="not in the list`)
	dnsmasq(t, otherLink)
	var conflict *OtherServerError
	if err := s.Wait(); !errors.As(err, &conflict) || conflict.Server.String() != other {
		t.Errorf("a second DHCP server: got %v, want an error with %s", err, other)
	}
	o.searchTime = 10 * time.Second // a busy machine answers late
	if _, err := Start(t.Context(), o); !errors.As(err, &conflict) || conflict.Server.String() != other {
		t.Errorf("start beside another DHCP server: got %v, want an error with %s", err, other)
	}
}

// A proxy adds boot files to the offers of another DHCP server, which is independent of this code. It does not share
// the port with a DHCP server of this machine.
func TestProxy(t *testing.T) {
	if !nettest.Namespace(t) {
		return
	}
	network(t)
	dnsmasq(t, otherLink, "--dhcp-boot=another.efi")
	for { // until dnsmasq answers
		found, err := server.Probe(t.Context(), bridge, time.Second)
		if err != nil {
			t.Fatal(err)
		}
		if len(found) > 0 {
			break
		}
	}
	var log nettest.Log
	o := options(t, &log)
	o.Machines = nil
	o.searchTime = 10 * time.Second // a busy machine answers late
	s := mustStart(t, o)
	// This machine's own interface, to which a probe of the other one is foreign.
	found, err := server.Probe(t.Context(), otherLink, 10*time.Second) // a busy machine answers late
	if err != nil {
		t.Fatal(err)
	}
	waitLine(t, &log, `msg="another server offers a boot file.*server=192\.0\.2\.2 file=another\.efi`)
	link, err := net.InterfaceByName(otherLink)
	if err != nil {
		t.Fatal(err)
	}
	want := server.Other{Server: netip.MustParseAddr(own), BootFile: dashed(link.HardwareAddr) + "/snponly.efi"}
	if len(found) != 1 || found[0] != want {
		t.Errorf("got %+v, want only %+v", found, want)
	}
	if found, _ := log.Matches("no DHCP server answers"); found {
		t.Error("the DHCP server of the network was not found")
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	dnsmasq(t, bridge)
	_, err = Start(t.Context(), o)
	if !errors.Is(err, syscall.EADDRINUSE) || !strings.Contains(err.Error(), "port 67") {
		t.Errorf("DHCP server of this machine: got %v, want %v of port 67", err, syscall.EADDRINUSE)
	}
}

// Without a DHCP server in the network the log says so, and a machine that stops is reported.
func TestNoServer(t *testing.T) {
	l, inside := nettest.New(t)
	if !inside {
		return
	}
	cabled(t, l)
	var log nettest.Log
	o := options(t, &log)
	o.stallTime = time.Millisecond
	s := mustStart(t, o)
	get(t, l, s.URL()+"02-00-00-00-00-01/kernel-amd64")
	waitLine(t, &log, `msg="machine did not boot" mac=02:00:00:00:00:01 .*last="fetched kernel-amd64"`)
	waitLine(t, &log, `msg="no DHCP server answers: machines get no address" interface=br0`)
}

// Neither the files nor DHCP can be reached from another network of this machine, whatever address is used.
func TestOtherNetworks(t *testing.T) {
	l, inside := nettest.New(t)
	if !inside {
		return
	}
	cabled(t, l)
	l.Cable("other0", "198.51.100.2/24")
	nettest.Configure(t, "other0", "198.51.100.1/24")
	var log nettest.Log
	s := mustStart(t, options(t, &log))
	if get(t, l, s.URL()+"02-00-00-00-00-01/kernel-amd64") == "" {
		t.Error("its own network: got no file")
	}
	port := strings.Trim(s.URL()[strings.LastIndex(s.URL(), ":"):], ":/")
	l.Peer(func() error { return routeBy("peer-other0", own, "198.51.100.1") })
	for _, address := range []string{own, "198.51.100.1"} {
		for _, c := range []struct{ network, port string }{
			{"tcp", port}, {"udp", "69"}, {"udp", "67"}, {"udp", "4011"},
		} {
			var err error
			l.Peer(func() error {
				err = reach(c.network, net.JoinHostPort(address, c.port), "peer-other0")
				return nil
			})
			if !errors.Is(err, syscall.ECONNREFUSED) {
				t.Errorf("another network, %s %s:%s: got %v, want %v", c.network, address, c.port, err,
					syscall.ECONNREFUSED)
			}
		}
	}
}

// routeBy adds a route to an address.
func routeBy(name, address, gateway string) error {
	link, err := netlink.LinkByName(name)
	if err != nil {
		return err
	}
	return netlink.RouteAdd(&netlink.Route{
		LinkIndex: link.Attrs().Index, Dst: netlink.NewIPNet(net.ParseIP(address)), Gw: net.ParseIP(gateway),
	})
}

// reach sends a request to a port by an interface and waits for the response.
func reach(network, address, name string) error {
	dialer := net.Dialer{Timeout: nettest.Timeout, Control: func(_, _ string, raw syscall.RawConn) error {
		var failed error
		err := raw.Control(func(fd uintptr) { failed = unix.BindToDevice(int(fd), name) })
		return errors.Join(err, failed)
	}}
	conn, err := dialer.Dial(network, address)
	if err != nil {
		return err
	}
	defer conn.Close()
	if err := conn.SetDeadline(time.Now().Add(nettest.Timeout)); err != nil {
		return err
	}
	request := "\x00\x0102-00-00-00-00-01/kernel-amd64\x00octet\x00"
	if network == "tcp" {
		request = "GET /02-00-00-00-00-01/kernel-amd64 HTTP/1.0\r\n\r\n"
	}
	if _, err := conn.Write([]byte(request)); err != nil {
		return err
	}
	_, err = conn.Read(make([]byte, 1))
	return err
}

func waitLine(t *testing.T, log *nettest.Log, expression string) {
	t.Helper()
	for {
		found, changed := log.Matches(expression)
		if found {
			return
		}
		select {
		case <-changed:
		case <-time.After(nettest.Timeout):
			t.Fatalf("no line %q in the log after %v", expression, nettest.Timeout)
		}
	}
}

// The errors for interfaces say what is missing.
func TestInterfaces(t *testing.T) {
	if !nettest.Namespace(t) {
		return
	}
	network(t)
	nettest.Configure(t, "port0", "2001:db8::1/64")
	for name, c := range map[string]struct {
		link, own string
		want      string
	}{
		"absent":        {"eth9", "", `interface "eth9": route ip+net: no such network interface (this machine has `},
		"loopback":      {"lo", "", "interface lo is the loopback"},
		"no address":    {"port0", "", "interface port0 has no IPv4 address (ip address add ADDRESS/LENGTH dev port0)"},
		"other address": {bridge, "192.0.2.9", `interface br0: got the addresses ["192.0.2.1"], want 192.0.2.9`},
	} {
		o := options(t, io.Discard)
		o.Interface = c.link
		if c.own != "" {
			o.Address = netip.MustParseAddr(c.own)
		}
		if _, err := Start(t.Context(), o); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: got %v, want %q", name, err, c.want)
		}
	}
}
