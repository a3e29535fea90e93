package dhcp4

import (
	"bytes"
	"fmt"
	"net"

	"github.com/insomniacslk/dhcp/dhcpv4"
	"github.com/insomniacslk/dhcp/iana"

	"ironroot/netboot/dhcp"
)

// vendorClass distinguishes this client from firmware and installed systems (option 60).
const vendorClass = "ironroot"

// maxMessageSize is the size in bytes of the largest message that the client accepts (option 57).
const maxMessageSize = 1500

// newMessage returns a message with the fields and options that all of the client's messages have.
func newMessage(mac net.HardwareAddr, kind dhcpv4.MessageType, options ...dhcpv4.Modifier) (*dhcpv4.DHCPv4, error) {
	message, err := dhcpv4.New(dhcpv4.PrependModifiers(options,
		hardware(mac),
		dhcpv4.WithMessageType(kind),
		dhcpv4.WithOption(dhcpv4.OptClientIdentifier(clientID(mac))),
		dhcpv4.WithOption(dhcpv4.OptClassIdentifier(vendorClass)),
		dhcpv4.WithOption(dhcpv4.OptMaxMessageSize(maxMessageSize)),
		dhcpv4.WithRequestedOptions(
			// RFC 3442: option 121 is requested before option 3.
			dhcpv4.OptionSubnetMask, dhcpv4.OptionClasslessStaticRoute, dhcpv4.OptionRouter,
			dhcpv4.OptionDomainNameServer, dhcpv4.OptionHostName, dhcpv4.OptionDomainName,
			dhcpv4.OptionDNSDomainSearchList, dhcpv4.OptionInterfaceMTU, dhcpv4.OptionNTPServers,
			dhcpv4.OptionRenewTimeValue, dhcpv4.OptionRebindingTimeValue,
		),
	)...)
	if err != nil {
		return nil, fmt.Errorf("make DHCP message: %w", err)
	}
	return message, nil
}

// infiniBandDUID begins the client identifier of an InfiniBand port: type 255 (RFC 4361), an IAID of zero, and a DUID
// with the enterprise number of Mellanox. The GUID follows. Boot firmware and Ironic's ports use this format.
const infiniBandDUID = "\xff\x00\x00\x00\x00\x00\x02\x00\x00\x02\xc9\x00"

// clientID returns the value of option 61, which is the same as in the card's boot firmware.
func clientID(mac net.HardwareAddr) []byte {
	if dhcp.IsInfiniBand(mac) {
		return append([]byte(infiniBandDUID), dhcp.PortGUID(mac)...)
	}
	return append([]byte{byte(iana.HWTypeEthernet)}, mac...)
}

// hardware sets the hardware type and address of a message. An InfiniBand address is too long: it is left out, the
// client identifier identifies the client, and the answer must be broadcast (RFC 4390, section 2.1).
func hardware(mac net.HardwareAddr) dhcpv4.Modifier {
	if !dhcp.IsInfiniBand(mac) {
		return dhcpv4.WithHwAddr(mac)
	}
	return func(m *dhcpv4.DHCPv4) {
		m.HWType, m.ClientHWAddr = iana.HWTypeInfiniband, net.HardwareAddr{}
		m.SetBroadcast()
	}
}

// answerAddress returns the hardware address in answers to a client.
func answerAddress(mac net.HardwareAddr) net.HardwareAddr {
	if dhcp.IsInfiniBand(mac) {
		return net.HardwareAddr{}
	}
	return mac
}

// Offsets of the fields of a message (RFC 2131, section 2).
const (
	opField     = 0
	idField     = 4
	macField    = 28
	serverField = 44 // sname
	fileField   = 108
	fileEnd     = 236
)

// isAnswer reports whether bytes are a server's answer to the message with a transaction ID, to a hardware address.
// They can still be malformed.
func isAnswer(raw []byte, id dhcpv4.TransactionID, mac net.HardwareAddr) bool {
	return len(raw) >= serverField && raw[opField] == byte(dhcpv4.OpcodeBootReply) &&
		bytes.Equal(raw[idField:idField+len(id)], id[:]) && bytes.Equal(raw[macField:macField+len(mac)], mac)
}

// parseMessage parses a message. Options can continue in the fields for the boot file and the name of the server, in
// this order (RFC 2132, section 9.3; RFC 3396, section 5), which the library does not support.
func parseMessage(raw []byte) (*dhcpv4.DHCPv4, error) {
	m, err := dhcpv4.FromBytes(raw)
	if err != nil {
		return nil, fmt.Errorf("malformed answer: %w", err)
	}
	const inFile, inServer = 1, 2
	overload := m.Options.Get(dhcpv4.OptionOptionOverload)
	if len(overload) != 1 {
		return m, nil
	}
	if overload[0]&inFile != 0 {
		m.BootFileName = ""
		if err := m.Options.FromBytes(raw[fileField:fileEnd]); err != nil {
			return nil, fmt.Errorf("malformed answer: options in the field for the boot file: %w", err)
		}
	}
	if overload[0]&inServer != 0 {
		m.ServerHostName = ""
		if err := m.Options.FromBytes(raw[serverField:fileField]); err != nil {
			return nil, fmt.Errorf("malformed answer: options in the field for the server's name: %w", err)
		}
	}
	return m, nil
}
