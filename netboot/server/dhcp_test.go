package server

import (
	"net"
	"net/netip"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/insomniacslk/dhcp/dhcpv4"
	"github.com/insomniacslk/dhcp/iana"
)

var (
	machine = net.HardwareAddr{2, 0, 0, 0, 0, 1}
	another = net.HardwareAddr{2, 0, 0, 0, 0, 2}
	pinned  = net.HardwareAddr{2, 0, 0, 0, 0, 3}
)

// quiet returns a server without a socket.
func quiet() *DHCP {
	return &DHCP{
		config: DHCPConfig{
			Interface: "test", Address: netip.MustParsePrefix("192.0.2.1/24"), Lease: time.Hour,
			First: netip.MustParseAddr("192.0.2.10"), Last: netip.MustParseAddr("192.0.2.11"),
			Router: netip.MustParseAddr("192.0.2.1"), DNS: []netip.Addr{netip.MustParseAddr("192.0.2.53")}, MTU: 1400,
			Routes: []Route{
				{Destination: netip.MustParsePrefix("198.51.100.0/24"), Gateway: netip.MustParseAddr("192.0.2.9")},
			},
			Boot: &Boot{Script: "http://192.0.2.1/boot.ipxe"},
		},
		hosts: map[string]Host{pinned.String(): {
			Address: netip.MustParseAddr("192.0.2.77"), Hostname: "node-3", Script: "http://192.0.2.1/3",
		}},
		leases: map[string]Lease{},
	}
}

func message(t *testing.T, mac net.HardwareAddr, kind dhcpv4.MessageType, options ...dhcpv4.Modifier) *dhcpv4.DHCPv4 {
	t.Helper()
	m, err := dhcpv4.New(append([]dhcpv4.Modifier{dhcpv4.WithHwAddr(mac), dhcpv4.WithMessageType(kind)}, options...)...)
	if err != nil {
		t.Fatal(err)
	}
	return m
}

func ask(t *testing.T, d *DHCP, m *dhcpv4.DHCPv4) *dhcpv4.DHCPv4 {
	t.Helper()
	answer, err := d.answer(m)
	if err != nil {
		t.Fatal(err)
	}
	if answer == nil {
		return nil
	}
	parsed, err := dhcpv4.FromBytes(answer.ToBytes())
	if err != nil {
		t.Fatal(err)
	}
	return parsed
}

func TestAddresses(t *testing.T) {
	d := quiet()
	wantIP := net.IPv4(192, 0, 2, 10)
	offer := ask(t, d, message(t, machine, dhcpv4.MessageTypeDiscover))
	if offer.MessageType() != dhcpv4.MessageTypeOffer || !offer.YourIPAddr.Equal(wantIP) {
		t.Fatalf("offer: got %v, want an offer of %v", offer, wantIP)
	}
	discover := message(t, another, dhcpv4.MessageTypeDiscover)
	if got := ask(t, d, discover).YourIPAddr; !got.Equal(net.IPv4(192, 0, 2, 11)) {
		t.Errorf("second machine while the first is offered an address: got %v, want 192.0.2.11", got)
	}
	serverID := dhcpv4.WithOption(dhcpv4.OptServerIdentifier(net.IPv4(192, 0, 2, 1)))
	wanted := dhcpv4.WithOption(dhcpv4.OptRequestedIPAddress(wantIP))
	ack := ask(t, d, message(t, machine, dhcpv4.MessageTypeRequest, serverID, wanted))
	if ack.MessageType() != dhcpv4.MessageTypeAck || !ack.YourIPAddr.Equal(wantIP) {
		t.Fatalf("request: got %v, want an acknowledgement of %v", ack, wantIP)
	}
	if got, want := ack.IPAddressLeaseTime(0), time.Hour; got != want {
		t.Errorf("lease: got %v, want %v", got, want)
	}
	mask, _ := ack.SubnetMask().Size()
	if mask != 24 || !ack.Router()[0].Equal(net.IPv4(192, 0, 2, 1)) || len(ack.DNS()) != 1 {
		t.Errorf("options: got mask %d, router %v, DNS %v", mask, ack.Router(), ack.DNS())
	}
	routes := ack.ClasslessStaticRoute()
	if len(routes) != 1 || routes[0].String() != "route to 198.51.100.0/24 via 192.0.2.9" {
		t.Errorf("routes: got %v", routes)
	}
	third := net.HardwareAddr{2, 0, 0, 0, 0, 9}
	if answer, err := d.answer(message(t, third, dhcpv4.MessageTypeDiscover)); err == nil {
		t.Errorf("full pool: got %v, want an error", answer)
	}
	ask(t, d, message(t, machine, dhcpv4.MessageTypeRelease))
	if got := ask(t, d, message(t, third, dhcpv4.MessageTypeDiscover)).YourIPAddr; !got.Equal(wantIP) {
		t.Errorf("after a release: got %v, want %v", got, wantIP)
	}
	if got := ask(t, d, message(t, pinned, dhcpv4.MessageTypeDiscover)); got.HostName() != "node-3" ||
		!got.YourIPAddr.Equal(net.IPv4(192, 0, 2, 77)) {
		t.Errorf("fixed: got %v %q, want 192.0.2.77 \"node-3\"", got.YourIPAddr, got.HostName())
	}
	macs := []string{}
	for _, l := range d.Leases() {
		macs = append(macs, l.MAC.String()+" "+l.Address.String())
	}
	want := []string{third.String() + " 192.0.2.10", another.String() + " 192.0.2.11", pinned.String() + " 192.0.2.77"}
	if diff := cmp.Diff(want, macs); diff != "" {
		t.Errorf("leases (-want +got):\n%s", diff)
	}
}

func TestRequests(t *testing.T) {
	d := quiet()
	wanted := func(last byte) dhcpv4.Modifier {
		return dhcpv4.WithOption(dhcpv4.OptRequestedIPAddress(net.IPv4(192, 0, 2, last)))
	}
	if got := ask(t, d, message(t, machine, dhcpv4.MessageTypeRequest, wanted(10),
		dhcpv4.WithOption(dhcpv4.OptServerIdentifier(net.IPv4(192, 0, 2, 99))))); got != nil {
		t.Errorf("request to another server: got %v, want no answer", got)
	}
	wrong := message(t, pinned, dhcpv4.MessageTypeRequest, wanted(10))
	if got := ask(t, d, wrong); got.MessageType() != dhcpv4.MessageTypeNak {
		t.Errorf("request of an address that is not the machine's: got %v, want a refusal", got)
	}
	// A renewal has its address in ciaddr. The reply contains the fixed one, without a NAK.
	renewal := message(t, pinned, dhcpv4.MessageTypeRequest, dhcpv4.WithClientIP(net.IPv4(192, 0, 2, 10)))
	if got := ask(t, d, renewal); got.MessageType() != dhcpv4.MessageTypeAck ||
		!got.YourIPAddr.Equal(net.IPv4(192, 0, 2, 77)) {
		t.Errorf("renewal: got %v, want an acknowledgement of 192.0.2.77", got)
	}
	if _, err := d.answer(message(t, machine, dhcpv4.MessageTypeDecline)); err == nil {
		t.Error("decline: got no error, want one in the log")
	}
}

func TestBootFiles(t *testing.T) {
	class := func(arch iana.Arch) []dhcpv4.Modifier {
		return []dhcpv4.Modifier{
			dhcpv4.WithOption(dhcpv4.OptClientArch(arch)),
			dhcpv4.WithOption(dhcpv4.OptClassIdentifier("PXEClient:Arch:00000:UNDI:002001")),
		}
	}
	// iPXE sends its user class as a plain string.
	ipxe := append(class(iana.INTEL_X86PC), dhcpv4.WithGeneric(dhcpv4.OptionUserClassInformation, []byte("iPXE")))
	for name, c := range map[string]struct {
		mac     net.HardwareAddr
		options []dhcpv4.Modifier
		file    string
		pxe     bool
	}{
		"operating system":     {machine, nil, "", false},
		"BIOS":                 {machine, class(iana.INTEL_X86PC), "undionly.kpxe", true},
		"UEFI, type 7":         {machine, class(iana.EFI_X86_64), "snponly.efi", true},
		"UEFI, type 9":         {machine, class(iana.EFI_BC), "snponly.efi", true},
		"UEFI on arm64":        {machine, class(iana.EFI_ARM64), "snponly-arm64.efi", true},
		"unknown":              {machine, class(iana.EFI_ITANIUM), "", false},
		"iPXE":                 {machine, ipxe, "http://192.0.2.1/boot.ipxe", false},
		"iPXE with own script": {pinned, ipxe, "http://192.0.2.1/3", false},
		"iPXE class as RFC3004": {
			machine, append(class(iana.EFI_BC), dhcpv4.WithUserClass("iPXE", true)),
			"http://192.0.2.1/boot.ipxe", false,
		},
	} {
		t.Run(name, func(t *testing.T) {
			offer := ask(t, quiet(), message(t, c.mac, dhcpv4.MessageTypeDiscover, c.options...))
			if offer.BootFileName != c.file || offer.BootFileNameOption() != c.file {
				t.Errorf("boot file: got %q and %q, want %q", offer.BootFileName, offer.BootFileNameOption(), c.file)
			}
			if got := offer.ClassIdentifier() == "PXEClient"; got != c.pxe {
				t.Errorf("marked for PXE: got %v, want %v", got, c.pxe)
			}
			if c.file != "" &&
				(!offer.ServerIPAddr.Equal(net.IPv4(192, 0, 2, 1)) || offer.TFTPServerName() != "192.0.2.1") {
				t.Errorf("server: got %v and %q, want 192.0.2.1", offer.ServerIPAddr, offer.TFTPServerName())
			}
		})
	}
}

func TestConfigIsChecked(t *testing.T) {
	good := DHCPConfig{Interface: "x", Address: netip.MustParsePrefix("192.0.2.1/24")}
	pool := func(first, last string) func(*DHCPConfig) {
		return func(c *DHCPConfig) { c.First, c.Last = netip.MustParseAddr(first), netip.MustParseAddr(last) }
	}
	for name, change := range map[string]func(*DHCPConfig){
		"no interface": func(c *DHCPConfig) { c.Interface = "" },
		"no address":   func(c *DHCPConfig) { c.Address = netip.Prefix{} },
		"IPv6":         func(c *DHCPConfig) { c.Address = netip.MustParsePrefix("2001:db8::1/64") },
		"one end":      func(c *DHCPConfig) { c.First = netip.MustParseAddr("192.0.2.5") },
		"other subnet": pool("198.51.100.1", "198.51.100.2"),
		"backwards":    pool("192.0.2.20", "192.0.2.10"),
	} {
		config := good
		change(&config)
		if d, err := ListenDHCP(t.Context(), config); err == nil {
			t.Errorf("%s: got a server, want an error", name)
			_ = d.Close()
		}
	}
}

func FuzzAnswer(f *testing.F) {
	seed, err := dhcpv4.New(dhcpv4.WithHwAddr(machine), dhcpv4.WithMessageType(dhcpv4.MessageTypeDiscover),
		dhcpv4.WithOption(dhcpv4.OptClientArch(iana.INTEL_X86PC)), dhcpv4.WithUserClass("iPXE", true))
	if err != nil {
		f.Fatal(err)
	}
	f.Add(seed.ToBytes())
	f.Fuzz(func(t *testing.T, raw []byte) {
		m, err := dhcpv4.FromBytes(raw)
		if err != nil {
			return
		}
		d := quiet()
		answer, err := d.answer(m)
		if err != nil || answer == nil {
			return
		}
		kinds := []dhcpv4.MessageType{dhcpv4.MessageTypeOffer, dhcpv4.MessageTypeAck, dhcpv4.MessageTypeNak}
		if !slices.Contains(kinds, answer.MessageType()) {
			t.Errorf("answer of type %v", answer.MessageType())
		}
		ip := answer.YourIPAddr
		if !ip.IsUnspecified() && !d.config.Address.Contains(netip.AddrFrom4([4]byte(ip.To4()))) {
			t.Errorf("address %v is not of the subnet", ip)
		}
	})
}
