package server

import (
	"net"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/insomniacslk/dhcp/dhcpv4"
	"github.com/insomniacslk/dhcp/iana"
)

// Client describes a machine that boots from the network, by its own words in a DHCP message.
type Client struct {
	MAC  net.HardwareAddr
	Arch string // GOARCH of the system that its firmware boots; "" for one that Code does not tell
	UEFI bool   // the firmware is UEFI, otherwise BIOS
	HTTP bool   // UEFI HTTP boot: the firmware wants a URL
	IPXE bool   // the client is iPXE, which wants the URL of its script
	Code string // architecture as registered for option 93 (RFC 4578)
}

// The vendor classes of firmware that boots from the network (option 60): PXE 2.1, section 2.2.1, and UEFI 2.10,
// section 24.7.
const (
	pxeClass  = "PXEClient"
	httpClass = "HTTPClient"
)

// The architectures of option 93 for which there are boot files. The first edition of RFC 4578 swapped 7 and 9;
// firmware for x86-64 uses either.
var architectures = map[iana.Arch]Client{
	iana.INTEL_X86PC:     {Arch: "amd64"},
	iana.EFI_BC:          {Arch: "amd64", UEFI: true},
	iana.EFI_X86_64:      {Arch: "amd64", UEFI: true},
	iana.EFI_ARM64:       {Arch: "arm64", UEFI: true},
	iana.EFI_X86_64_HTTP: {Arch: "amd64", UEFI: true},
	iana.EFI_BC_HTTP:     {Arch: "amd64", UEFI: true},
	iana.EFI_ARM64_HTTP:  {Arch: "arm64", UEFI: true},
}

// identify returns the client that sent a message, and whether it boots from the network. Operating systems do not.
func identify(m *dhcpv4.DHCPv4) (Client, bool) {
	class := m.ClassIdentifier()
	isHTTP, ipxe := strings.HasPrefix(class, httpClass), isIPXE(m)
	if !isHTTP && !ipxe && !strings.HasPrefix(class, pxeClass) {
		return Client{}, false
	}
	var c Client
	codes := archCodes(m, class)
	for _, code := range codes {
		if known, ok := architectures[code]; ok {
			c, codes = known, []iana.Arch{code}
			break
		}
	}
	if len(codes) > 0 {
		c.Code = codes[0].String()
	}
	c.MAC, c.IPXE, c.HTTP = slices.Clone(m.ClientHWAddr), ipxe, isHTTP && !ipxe
	return c, true
}

// classArch matches the architecture in a vendor class: PXEClient:Arch:00007:UNDI:003016.
var classArch = regexp.MustCompile(`^(?:PXEClient|HTTPClient):Arch:([0-9]{1,5})(?::|$)`)

// archCodes returns the architectures of a client: the values of option 93, otherwise the one in its vendor class, and
// of PXE firmware that has neither, BIOS. RFC 4578 requires the option, but firmware that is older lacks it.
func archCodes(m *dhcpv4.DHCPv4, class string) []iana.Arch {
	if codes := m.ClientArch(); len(codes) > 0 {
		return codes
	}
	if match := classArch.FindStringSubmatch(class); match != nil {
		if code, err := strconv.ParseUint(match[1], 10, 16); err == nil {
			return []iana.Arch{iana.Arch(code)}
		}
	}
	if strings.HasPrefix(class, httpClass) {
		return nil
	}
	return []iana.Arch{iana.INTEL_X86PC}
}

// isIPXE reports whether the client is iPXE, by its user class.
func isIPXE(m *dhcpv4.DHCPv4) bool {
	// iPXE sends a plain string instead of the list of RFC 3004.
	plain := strings.TrimRight(string(m.Options.Get(dhcpv4.OptionUserClassInformation)), "\x00")
	return plain == "iPXE" || slices.Contains(m.UserClass(), "iPXE")
}

// Loaders are the boot files of a network in which each machine boots the same.
type Loaders struct {
	BIOS   string // for BIOS clients
	UEFI   string // for UEFI clients on x86-64
	Script string // URL of the script for iPXE
}

// File returns the boot file of a client.
func (l Loaders) File(c Client) string {
	switch {
	case c.IPXE:
		return l.Script
	case c.HTTP || c.Arch != "amd64":
		return ""
	case c.UEFI:
		return l.UEFI
	default:
		return l.BIOS
	}
}
