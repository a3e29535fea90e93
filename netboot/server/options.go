package server

import (
	"encoding/binary"
	"net"
	"net/netip"

	"github.com/insomniacslk/dhcp/dhcpv4"
)

// Boot specifies the boot files of clients.
type Boot struct {
	Server netip.Addr // TFTP server; invalid means the DHCP server itself
	Files  BootFiles
}

// BootFiles contains the boot files of clients.
type BootFiles interface {
	// File returns the boot file of a client: a path for TFTP, or a URL for iPXE and UEFI HTTP boot; "" for none. It is
	// called for each message of the client.
	File(client Client) string
}

// grant returns an offer or acknowledgement of address with all options, without an address if it is invalid
// (DHCPINFORM).
func (d *DHCP) grant(m *dhcpv4.DHCPv4, kind dhcpv4.MessageType, address netip.Addr) (*dhcpv4.DHCPv4, error) {
	c := d.config
	options := []dhcpv4.Modifier{
		dhcpv4.WithMessageType(kind),
		dhcpv4.WithOption(dhcpv4.OptServerIdentifier(c.Address.Addr().AsSlice())),
		dhcpv4.WithNetmask(net.CIDRMask(c.Address.Bits(), 32)),
	}
	if address.IsValid() {
		options = append(options,
			dhcpv4.WithYourIP(address.AsSlice()),
			dhcpv4.WithLeaseTime(uint32(c.Lease.Seconds())))
	}
	if c.Router.IsValid() {
		options = append(options, dhcpv4.WithOption(dhcpv4.OptRouter(c.Router.AsSlice())))
	}
	if len(c.Routes) > 0 {
		options = append(options, dhcpv4.WithOption(dhcpv4.OptClasslessStaticRoute(classless(c.Routes)...)))
	}
	if len(c.DNS) > 0 {
		options = append(options, dhcpv4.WithOption(dhcpv4.OptDNS(ips(c.DNS)...)))
	}
	if len(c.NTP) > 0 {
		options = append(options, dhcpv4.WithOption(dhcpv4.OptNTPServers(ips(c.NTP)...)))
	}
	if c.Domain != "" {
		options = append(options, dhcpv4.WithOption(dhcpv4.OptDomainName(c.Domain)))
	}
	if c.MTU != 0 {
		mtu := binary.BigEndian.AppendUint16(nil, uint16(c.MTU))
		options = append(options, dhcpv4.WithGeneric(dhcpv4.OptionInterfaceMTU, mtu))
	}
	if host := d.hosts[m.ClientHWAddr.String()]; host.Hostname != "" {
		options = append(options, dhcpv4.WithOption(dhcpv4.OptHostName(host.Hostname)))
	}
	if c.Boot != nil {
		client, file := c.Boot.choose(m)
		options = append(options, c.Boot.options(m, client, file, c.Address.Addr(), false)...)
	}
	return dhcpv4.NewReplyFromRequest(m, options...)
}

// choose returns the client that sent a message and its boot file; "" for none.
func (b *Boot) choose(m *dhcpv4.DHCPv4) (Client, string) {
	client, boots := identify(m)
	if !boots {
		return Client{}, ""
	}
	return client, b.Files.File(client)
}

// maxFileField is the length of the longest name in the message's field for the boot file, without the final zero.
const maxFileField = 127

// options returns the boot file both in the message's own field and in options 66 and 67: firmware reads one or the
// other. Option 67 ends with a zero, as dnsmasq's does: some firmware ignores its length. A name that is too long for
// the field is only in the option. own is the address of this server. A proxy's reply contains no address.
func (b *Boot) options(m *dhcpv4.DHCPv4, c Client, file string, own netip.Addr, proxy bool) []dhcpv4.Modifier {
	if file == "" {
		return nil
	}
	server := b.Server
	if !server.IsValid() {
		server = own
	}
	options := []dhcpv4.Modifier{
		dhcpv4.WithServerIP(server.AsSlice()),
		dhcpv4.WithOption(dhcpv4.OptTFTPServerName(server.String())),
		dhcpv4.WithOption(dhcpv4.OptBootFileName(file + "\x00")),
	}
	if len(file) <= maxFileField {
		options = append(options, func(answer *dhcpv4.DHCPv4) { answer.BootFileName = file })
	}
	if id := m.Options.Get(dhcpv4.OptionClientMachineIdentifier); id != nil {
		// A client that sent its UUID expects it in the reply (PXE 2.1, section 2.2.3).
		options = append(options, dhcpv4.WithGeneric(dhcpv4.OptionClientMachineIdentifier, id))
	}
	switch {
	case c.HTTP:
		options = append(options, dhcpv4.WithOption(dhcpv4.OptClassIdentifier(httpClass)))
	case c.IPXE && !proxy:
		// Without this option iPXE waits for a proxy DHCP server.
		options = append(options, dhcpv4.WithGeneric(dhcpv4.GenericOptionCode(ipxeOptions), []byte{ipxeNoProxy, 1, 1}))
	default:
		// PXE firmware requires its own class in the reply (PXE 2.1, section 2.2.3), and iPXE in the reply of a proxy.
		options = append(options, dhcpv4.WithOption(dhcpv4.OptClassIdentifier(pxeClass)),
			dhcpv4.WithGeneric(dhcpv4.OptionVendorSpecificInformation, discoveryControl()))
	}
	return options
}

// bootFile returns the boot file of a reply.
func bootFile(answer *dhcpv4.DHCPv4) string {
	if name := answer.BootFileNameOption(); name != "" {
		return name
	}
	return answer.BootFileName
}

// iPXE's own options, which are encapsulated in option 175.
const (
	ipxeOptions = 175
	ipxeNoProxy = 176
)

// discoveryControl makes PXE firmware use the boot file of this message without searching for a boot server.
func discoveryControl() []byte { return []byte{6, 1, 8, 255} }

func classless(routes []Route) []*dhcpv4.Route {
	list := make([]*dhcpv4.Route, len(routes))
	for i, r := range routes {
		gateway := net.IPv4zero.To4()
		if r.Gateway.IsValid() {
			gateway = r.Gateway.AsSlice()
		}
		destination := r.Destination.Masked()
		list[i] = &dhcpv4.Route{
			Dest:   &net.IPNet{IP: destination.Addr().AsSlice(), Mask: net.CIDRMask(destination.Bits(), 32)},
			Router: gateway,
		}
	}
	return list
}

func ips(addresses []netip.Addr) []net.IP {
	list := make([]net.IP, len(addresses))
	for i, a := range addresses {
		list[i] = a.AsSlice()
	}
	return list
}
