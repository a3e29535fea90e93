package server

import (
	"encoding/binary"
	"net"
	"net/netip"
	"slices"

	"github.com/insomniacslk/dhcp/dhcpv4"
	"github.com/insomniacslk/dhcp/iana"
)

// Boot specifies the boot files: a first-stage file by TFTP for firmware, and the script for iPXE.
type Boot struct {
	Server netip.Addr // TFTP server; invalid means the DHCP server itself
	BIOS   string     // for BIOS clients; "" means undionly.kpxe
	UEFI   string     // for UEFI clients on x86-64; "" means snponly.efi
	ARM64  string     // for UEFI clients on arm64; "" means snponly-arm64.efi
	Script string     // URL of the script for clients of the user class iPXE
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
	host := d.hosts[m.ClientHWAddr.String()]
	if host.Hostname != "" {
		options = append(options, dhcpv4.WithOption(dhcpv4.OptHostName(host.Hostname)))
	}
	return dhcpv4.NewReplyFromRequest(m, append(options, c.bootOptions(m, host)...)...)
}

// bootOptions returns the boot file both in the message's own fields and in options 66 and 67: firmware reads one or
// the other.
func (c DHCPConfig) bootOptions(m *dhcpv4.DHCPv4, host Host) []dhcpv4.Modifier {
	if c.Boot == nil {
		return nil
	}
	file := c.Boot.file(m)
	script := c.Boot.Script
	if host.Script != "" {
		script = host.Script
	}
	if isIPXE(m) {
		file = script
	}
	if file == "" {
		return nil
	}
	server := c.Boot.Server
	if !server.IsValid() {
		server = c.Address.Addr()
	}
	options := []dhcpv4.Modifier{
		dhcpv4.WithServerIP(server.AsSlice()),
		dhcpv4.WithOption(dhcpv4.OptTFTPServerName(server.String())),
		dhcpv4.WithOption(dhcpv4.OptBootFileName(file)),
		func(answer *dhcpv4.DHCPv4) { answer.BootFileName = file },
	}
	switch {
	case isIPXE(m):
		// Without this option iPXE waits for a proxy DHCP server.
		options = append(options, dhcpv4.WithGeneric(dhcpv4.GenericOptionCode(ipxeOptions), []byte{ipxeNoProxy, 1, 1}))
	case m.ClassIdentifier() != "" && len(m.ClientArch()) > 0:
		// PXE firmware requires its own class in the reply (PXE 2.1, section 2.2.3).
		options = append(options, dhcpv4.WithOption(dhcpv4.OptClassIdentifier("PXEClient")),
			dhcpv4.WithGeneric(dhcpv4.OptionVendorSpecificInformation, discoveryControl()))
	}
	return options
}

// iPXE's own options, which are encapsulated in option 175.
const (
	ipxeOptions = 175
	ipxeNoProxy = 176
)

// discoveryControl makes PXE firmware use the boot file of this message without searching for a boot server.
func discoveryControl() []byte { return []byte{6, 1, 8, 255} }

// file returns the first-stage file for a client by the architecture of RFC 4578. Clients that send none are operating
// systems, for which it returns "".
func (b *Boot) file(m *dhcpv4.DHCPv4) string {
	for _, arch := range m.ClientArch() {
		switch arch {
		case iana.INTEL_X86PC:
			return withDefault(b.BIOS, "undionly.kpxe")
		case iana.EFI_BC, iana.EFI_X86_64:
			// The RFC's first edition swapped 7 and 9; x86-64 firmware uses either.
			return withDefault(b.UEFI, "snponly.efi")
		case iana.EFI_ARM64:
			return withDefault(b.ARM64, "snponly-arm64.efi")
		}
	}
	return ""
}

func withDefault(value, fallback string) string {
	if value == "" {
		return fallback
	}
	return value
}

// isIPXE reports whether the client is iPXE, by its user class.
func isIPXE(m *dhcpv4.DHCPv4) bool {
	// iPXE sends a plain string instead of the list of RFC 3004.
	return string(m.Options.Get(dhcpv4.OptionUserClassInformation)) == "iPXE" || slices.Contains(m.UserClass(), "iPXE")
}

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
