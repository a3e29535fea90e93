package server

import (
	"bytes"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
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

// oneFile offers the same file to each client but one, and records the clients.
type oneFile struct {
	name    string
	refused net.HardwareAddr
	clients []Client // without Code
}

func (f *oneFile) File(client Client) string {
	client.Code = ""
	f.clients = append(f.clients, client)
	if client.MAC.String() == f.refused.String() {
		return ""
	}
	return f.name
}

// quiet returns a server without a socket.
func quiet() *DHCP {
	return &DHCP{
		config: DHCPConfig{
			Interface: "test", Address: netip.MustParsePrefix("192.0.2.1/24"), Lease: time.Hour,
			First: netip.MustParseAddr("192.0.2.10"), Last: netip.MustParseAddr("192.0.2.11"),
			Router: netip.MustParseAddr("192.0.2.1"), DNS: []netip.Addr{netip.MustParseAddr("192.0.2.53")}, MTU: 1400,
			NTP: []netip.Addr{netip.MustParseAddr("192.0.2.123")}, Domain: "example.org",
			Routes: []Route{
				{Destination: netip.MustParsePrefix("198.51.100.0/24"), Gateway: netip.MustParseAddr("192.0.2.9")},
			},
			Boot: &Boot{Files: Loaders{Script: "http://192.0.2.1/boot.ipxe"}},
		},
		hosts: map[string]Host{pinned.String(): {
			Address: netip.MustParseAddr("192.0.2.77"), Hostname: "node-3",
		}},
		leases: map[string]Lease{}, declined: map[netip.Addr]time.Time{},
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
	if ntp := ack.NTPServers(); len(ntp) != 1 || !ntp[0].Equal(net.IPv4(192, 0, 2, 123)) {
		t.Errorf("NTP servers: got %v, want 192.0.2.123", ntp)
	}
	mtu := ack.Options.Get(dhcpv4.OptionInterfaceMTU)
	if got := ack.DomainName(); got != "example.org" || !bytes.Equal(mtu, []byte{1400 >> 8, 1400 & 0xff}) {
		t.Errorf("got domain %q and MTU %v, want example.org and 1400", got, mtu)
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

// An address of the pool that a machine has by configuration is for that machine only.
func TestFixedAddressOfPool(t *testing.T) {
	d := quiet()
	d.SetHost(another, Host{Address: netip.MustParseAddr("192.0.2.10")})
	wanted := dhcpv4.WithOption(dhcpv4.OptRequestedIPAddress(net.IPv4(192, 0, 2, 10)))
	for _, tt := range []struct {
		mac  net.HardwareAddr
		want net.IP
	}{{machine, net.IPv4(192, 0, 2, 11)}, {another, net.IPv4(192, 0, 2, 10)}} {
		if got := ask(t, d, message(t, tt.mac, dhcpv4.MessageTypeDiscover, wanted)).YourIPAddr; !got.Equal(tt.want) {
			t.Errorf("%s: got %v, want %v", tt.mac, got, tt.want)
		}
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
}

// An address that a client declines is not available, also if it is fixed (RFC 2131, section 4.3.3). Only the client
// that has the address from this server can decline it.
func TestDecline(t *testing.T) {
	d := quiet()
	wanted := func(last byte) dhcpv4.Modifier {
		return dhcpv4.WithOption(dhcpv4.OptRequestedIPAddress(net.IPv4(192, 0, 2, last)))
	}
	sentTo := func(last byte) dhcpv4.Modifier {
		return dhcpv4.WithOption(dhcpv4.OptServerIdentifier(net.IPv4(192, 0, 2, last)))
	}
	lease := func(mac net.HardwareAddr, want byte) {
		t.Helper()
		ask(t, d, message(t, mac, dhcpv4.MessageTypeDiscover))
		got := ask(t, d, message(t, mac, dhcpv4.MessageTypeRequest, sentTo(1), wanted(want)))
		if got.MessageType() != dhcpv4.MessageTypeAck || !got.YourIPAddr.Equal(net.IPv4(192, 0, 2, want)) {
			t.Errorf("%v: got %v, want an acknowledgement of 192.0.2.%d", mac, got, want)
		}
	}
	lease(machine, 10)
	if got := ask(t, d, message(t, machine, dhcpv4.MessageTypeDecline, sentTo(99), wanted(10))); got != nil {
		t.Errorf("decline to another server: got %v, want no answer", got)
	}
	for name, m := range map[string]*dhcpv4.DHCPv4{
		"no address":      message(t, machine, dhcpv4.MessageTypeDecline, sentTo(1)),
		"no lease":        message(t, another, dhcpv4.MessageTypeDecline, sentTo(1), wanted(11)),
		"another's lease": message(t, another, dhcpv4.MessageTypeDecline, sentTo(1), wanted(10)),
	} {
		if answer, err := d.answer(m); err == nil || answer != nil {
			t.Errorf("%s: got %v and no error, want one in the log", name, answer)
		}
	}
	lease(machine, 10)
	decline := func(mac net.HardwareAddr, last byte) {
		t.Helper()
		answer, err := d.answer(message(t, mac, dhcpv4.MessageTypeDecline, sentTo(1), wanted(last)))
		if address := netip.AddrFrom4([4]byte{192, 0, 2, last}).String(); answer != nil || err == nil ||
			!strings.Contains(err.Error(), address) {
			t.Errorf("decline of %s: got %v, %v, want no answer and the address in the log", address, answer, err)
		}
	}
	decline(machine, 10)
	again := message(t, machine, dhcpv4.MessageTypeRequest, sentTo(1), wanted(10))
	if got := ask(t, d, again); got.MessageType() != dhcpv4.MessageTypeNak {
		t.Errorf("request of the declined address: got %v, want a refusal", got)
	}
	lease(machine, 11)
	if answer, err := d.answer(message(t, another, dhcpv4.MessageTypeDiscover)); err == nil {
		t.Errorf("pool of declined and leased addresses: got %v, want an error", answer)
	}
	ask(t, d, message(t, machine, dhcpv4.MessageTypeRelease))
	lease(pinned, 77)
	decline(pinned, 77)
	lease(pinned, 11)
	for address := range d.declined {
		d.declined[address] = time.Now()
	}
	lease(another, 10)
	lease(pinned, 77)
}

// firmware returns the options of firmware or iPXE that boots from the network.
func firmware(arch iana.Arch, class string) []dhcpv4.Modifier {
	return []dhcpv4.Modifier{
		dhcpv4.WithOption(dhcpv4.OptClientArch(arch)),
		dhcpv4.WithOption(dhcpv4.OptClassIdentifier(class + ":Arch:00000:UNDI:002001")),
	}
}

// The reply has the boot file that is chosen for the client, and the class that its firmware requires.
func TestBootFiles(t *testing.T) {
	id := append([]byte{0}, "0123456789abcdef"...) // of the machine
	// iPXE sends its user class as a plain string.
	ipxe := append(firmware(iana.INTEL_X86PC, "PXEClient"),
		dhcpv4.WithGeneric(dhcpv4.OptionUserClassInformation, []byte("iPXE")))
	pxe := func(arch iana.Arch) []dhcpv4.Modifier { return firmware(arch, "PXEClient") }
	for name, c := range map[string]struct {
		options []dhcpv4.Modifier
		client  Client // without its MAC address
		class   string // of the reply
		proxy   string // of the reply of a proxy
	}{
		"operating system": {},
		"BIOS":             {pxe(iana.INTEL_X86PC), Client{Arch: "amd64"}, "PXEClient", "PXEClient"},
		"UEFI, type 7":     {pxe(iana.EFI_X86_64), Client{Arch: "amd64", UEFI: true}, "PXEClient", "PXEClient"},
		"UEFI, type 9":     {pxe(iana.EFI_BC), Client{Arch: "amd64", UEFI: true}, "PXEClient", "PXEClient"},
		"UEFI on arm64":    {pxe(iana.EFI_ARM64), Client{Arch: "arm64", UEFI: true}, "PXEClient", "PXEClient"},
		"HTTP": {
			firmware(iana.EFI_X86_64_HTTP, "HTTPClient"),
			Client{Arch: "amd64", UEFI: true, HTTP: true},
			"HTTPClient",
			"HTTPClient",
		},
		"HTTP on arm64": {
			firmware(iana.EFI_ARM64_HTTP, "HTTPClient"),
			Client{Arch: "arm64", UEFI: true, HTTP: true},
			"HTTPClient",
			"HTTPClient",
		},
		"no option 93": {
			[]dhcpv4.Modifier{dhcpv4.WithOption(dhcpv4.OptClassIdentifier("PXEClient"))},
			Client{Arch: "amd64"},
			"PXEClient", "PXEClient",
		},
		"architecture in the class": {
			[]dhcpv4.Modifier{dhcpv4.WithOption(dhcpv4.OptClassIdentifier("PXEClient:Arch:00011:UNDI:003016"))},
			Client{Arch: "arm64", UEFI: true},
			"PXEClient", "PXEClient",
		},
		"HTTP with the architecture in the class": {
			[]dhcpv4.Modifier{dhcpv4.WithOption(dhcpv4.OptClassIdentifier("HTTPClient:Arch:00016:UNDI:003001"))},
			Client{Arch: "amd64", UEFI: true, HTTP: true},
			"HTTPClient", "HTTPClient",
		},
		"HTTP without architecture": {
			[]dhcpv4.Modifier{dhcpv4.WithOption(dhcpv4.OptClassIdentifier("HTTPClient"))},
			Client{HTTP: true},
			"HTTPClient", "HTTPClient",
		},
		"malformed option 93": {
			[]dhcpv4.Modifier{
				dhcpv4.WithOption(dhcpv4.OptClassIdentifier("PXEClient:Arch:99999")),
				dhcpv4.WithGeneric(dhcpv4.OptionClientSystemArchitectureType, []byte{7}),
			},
			Client{Arch: "amd64"},
			"PXEClient", "PXEClient",
		},
		"iPXE, user class with a zero": {
			append(firmware(iana.INTEL_X86PC, "PXEClient"),
				dhcpv4.WithGeneric(dhcpv4.OptionUserClassInformation, []byte("iPXE\x00"))),
			Client{Arch: "amd64", IPXE: true},
			"", "PXEClient",
		},
		"unknown": {pxe(iana.EFI_ITANIUM), Client{}, "PXEClient", "PXEClient"},
		"iPXE":    {ipxe, Client{Arch: "amd64", IPXE: true}, "", "PXEClient"},
		"iPXE class as RFC 3004": {
			append(pxe(iana.EFI_BC), dhcpv4.WithUserClass("iPXE", true)),
			Client{Arch: "amd64", UEFI: true, IPXE: true},
			"", "PXEClient",
		},
	} {
		t.Run(name, func(t *testing.T) {
			discover := message(t, machine, dhcpv4.MessageTypeDiscover,
				append(c.options, dhcpv4.WithGeneric(dhcpv4.OptionClientMachineIdentifier, id))...)
			files := &oneFile{name: "directory/file"}
			boot := Boot{Files: files}
			d := quiet()
			d.config.Boot = &boot
			checkBoot(t, "assigning", ask(t, d, discover), c.options != nil, c.class)
			p := &Proxy{config: ProxyConfig{Address: netip.MustParseAddr("192.0.2.1"), Boot: boot}}
			offer, err := p.answer(discover, dhcpv4.MessageTypeDiscover, dhcpv4.MessageTypeOffer)
			if err != nil {
				t.Fatal(err)
			}
			if c.options == nil {
				if offer != nil || len(files.clients) > 0 {
					t.Errorf("got %v and clients %v, want none", offer, files.clients)
				}
				return
			}
			checkBoot(t, "proxy", offer, true, c.proxy)
			if !offer.YourIPAddr.IsUnspecified() || offer.IPAddressLeaseTime(0) != 0 {
				t.Errorf("proxy: got an address or a lease in %v, want none", offer)
			}
			if got := offer.Options.Get(dhcpv4.OptionClientMachineIdentifier); string(got) != string(id) {
				t.Errorf("machine identifier: got %q, want %q", got, id)
			}
			c.client.MAC = machine
			if diff := cmp.Diff([]Client{c.client, c.client}, files.clients); diff != "" {
				t.Errorf("clients (-want +got):\n%s", diff)
			}
		})
	}
}

// checkBoot checks the boot file and the class of a reply.
func checkBoot(t *testing.T, name string, got *dhcpv4.DHCPv4, boots bool, class string) {
	t.Helper()
	file, server, address := "", "", net.IPv4zero
	if boots {
		file, server, address = "directory/file", "192.0.2.1", net.IPv4(192, 0, 2, 1)
	}
	if raw := got.Options.Get(dhcpv4.OptionBootfileName); boots && string(raw) != file+"\x00" {
		t.Errorf("%s: option 67: got %q, want a zero at its end", name, raw)
	}
	if got.BootFileName != file || got.BootFileNameOption() != file || got.TFTPServerName() != server ||
		!got.ServerIPAddr.Equal(address) || got.ClassIdentifier() != class {
		t.Errorf("%s: got %v, want the boot file %q of %q and the class %q", name, got, file, server, class)
	}
}

// A proxy replies to what PXE firmware sends to each of its ports, and to nothing else.
func TestProxyMessages(t *testing.T) {
	p := &Proxy{config: ProxyConfig{
		Address: netip.MustParseAddr("192.0.2.1"), Boot: Boot{Files: &oneFile{name: "file", refused: another}},
	}}
	options := firmware(iana.EFI_X86_64, "PXEClient")
	own := dhcpv4.WithClientIP(net.IPv4(192, 0, 2, 9))
	relay := dhcpv4.WithGatewayIP(net.IPv4(198, 51, 100, 1))
	for name, c := range map[string]struct {
		mac            net.HardwareAddr
		kind           dhcpv4.MessageType
		change         dhcpv4.Modifier
		offered, acked bool
	}{
		"discover":     {machine, dhcpv4.MessageTypeDiscover, dhcpv4.WithBroadcast(true), true, false},
		"request":      {machine, dhcpv4.MessageTypeRequest, own, false, true},
		"inform":       {machine, dhcpv4.MessageTypeInform, own, false, false},
		"relayed":      {machine, dhcpv4.MessageTypeDiscover, relay, false, false},
		"no boot file": {another, dhcpv4.MessageTypeDiscover, dhcpv4.WithBroadcast(true), false, false},
	} {
		m := message(t, c.mac, c.kind, append(options, c.change)...)
		offer, err := p.answer(m, dhcpv4.MessageTypeDiscover, dhcpv4.MessageTypeOffer)
		if err != nil || (offer != nil) != c.offered {
			t.Errorf("%s: got the offer %v, %v, want %t", name, offer, err, c.offered)
		}
		ack, err := p.answer(m, dhcpv4.MessageTypeRequest, dhcpv4.MessageTypeAck)
		if err != nil || (ack != nil) != c.acked {
			t.Errorf("%s: got the acknowledgement %v, %v, want %t", name, ack, err, c.acked)
		}
	}
}

// Only listed machines get an address. Other ones are reported as clients.
func TestListed(t *testing.T) {
	d := quiet()
	d.config.Listed = true
	files := &oneFile{}
	d.config.Boot.Files = files
	options := firmware(iana.EFI_X86_64, "PXEClient")
	for _, kind := range []dhcpv4.MessageType{dhcpv4.MessageTypeDiscover, dhcpv4.MessageTypeRequest} {
		if got := ask(t, d, message(t, machine, kind, options...)); got != nil {
			t.Errorf("unlisted machine: got %v, want no answer", got)
		}
	}
	if got := ask(t, d, message(t, pinned, dhcpv4.MessageTypeDiscover, options...)); got == nil {
		t.Error("listed machine: got no answer")
	}
	var asked []string
	for _, c := range files.clients {
		asked = append(asked, c.MAC.String())
	}
	if diff := cmp.Diff([]string{machine.String(), machine.String(), pinned.String()}, asked); diff != "" {
		t.Errorf("clients (-want +got):\n%s", diff)
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

// A name that does not fit into the message's own field with a zero behind it is only in option 67. The field of others
// is a string of C.
func TestLongBootFile(t *testing.T) {
	for length, isInField := range map[int]bool{1: true, 127: true, 128: false, 300: false} {
		name := strings.Repeat("x", length)
		d := quiet()
		d.config.Boot = &Boot{Files: &oneFile{name: name}}
		discover := message(t, machine, dhcpv4.MessageTypeDiscover, firmware(iana.INTEL_X86PC, "PXEClient")...)
		raw := ask(t, d, discover).ToBytes()
		field, _, ended := bytes.Cut(raw[108:236], []byte{0}) // RFC 2131, section 2
		if got := string(field); !ended || (got == name) != isInField || !isInField && got != "" {
			t.Errorf("%d bytes: got %q, ended: %t", length, got, ended)
		}
		answer, err := dhcpv4.FromBytes(raw)
		if err != nil || answer.BootFileNameOption() != name {
			t.Errorf("%d bytes: got %v, %v in option 67", length, answer, err)
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
	recorded, err := filepath.Glob("testdata/*.bin")
	if err != nil {
		f.Fatal(err)
	}
	for _, name := range recorded {
		raw, err := os.ReadFile(name)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(raw)
	}
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
		p := &Proxy{config: ProxyConfig{Address: d.config.Address.Addr(), Boot: *d.config.Boot}}
		offer, err := p.answer(m, dhcpv4.MessageTypeDiscover, dhcpv4.MessageTypeOffer)
		if err == nil && offer != nil && !offer.YourIPAddr.IsUnspecified() {
			t.Errorf("proxy: address %v", offer.YourIPAddr)
		}
		ip := answer.YourIPAddr
		if !ip.IsUnspecified() && !d.config.Address.Contains(netip.AddrFrom4([4]byte(ip.To4()))) {
			t.Errorf("address %v is not of the subnet", ip)
		}
	})
}

// The messages of testdata were recorded when machines of QEMU booted from this package's servers. OVMF and iPXE are
// identified by what they send, and get what they booted from.
func TestRecordedClients(t *testing.T) {
	for name, c := range map[string]struct {
		client Client
		class  string // of the reply of a proxy
	}{
		"ovmf-pxe":  {Client{Arch: "amd64", UEFI: true}, "PXEClient"},
		"ovmf-http": {Client{Arch: "amd64", UEFI: true, HTTP: true}, "HTTPClient"},
		"ipxe-uefi": {Client{Arch: "amd64", UEFI: true, IPXE: true}, "PXEClient"},
		"ipxe-bios": {Client{Arch: "amd64", IPXE: true}, "PXEClient"},
	} {
		raw, err := os.ReadFile(filepath.Join("testdata", name+".bin"))
		if err != nil {
			t.Fatal(err)
		}
		m, err := dhcpv4.FromBytes(raw)
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		got, ok := identify(m)
		got.MAC, got.Code = nil, ""
		if diff := cmp.Diff(c.client, got); diff != "" || !ok {
			t.Errorf("%s: got %t and (-want +got):\n%s", name, ok, diff)
		}
		boot := Boot{Files: &oneFile{name: "file"}}
		p := &Proxy{config: ProxyConfig{Address: netip.MustParseAddr("192.0.2.1"), Boot: boot}}
		answer, err := p.answer(m, dhcpv4.MessageTypeDiscover, dhcpv4.MessageTypeOffer)
		if err != nil || answer == nil {
			t.Fatalf("%s: got %v and %v, want an offer", name, answer, err)
		}
		id := dhcpv4.OptionClientMachineIdentifier
		if sent := m.Options.Get(id); len(sent) != 17 || string(answer.Options.Get(id)) != string(sent) ||
			answer.ClassIdentifier() != c.class || answer.TransactionID != m.TransactionID {
			t.Errorf("%s: got %v in reply to %v", name, answer, m)
		}
	}
}
