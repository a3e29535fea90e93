package inventory

import (
	"net"

	"ironroot/netboot/dhcp"
)

const mellanox = "0x15b3" // PCI vendor

// clientIDPrefix begins the DHCP client identifier (option 61) of an InfiniBand port: type 255, an IAID, and a DUID by
// Mellanox's enterprise number. The port's GUID follows.
const clientIDPrefix = "ff:00:00:00:00:00:02:00:00:02:c9:00:"

// infiniBand describes a port of a Mellanox adapter in InfiniBand mode. Its MAC address, which Ironic knows the port
// by, is the address of the Ethernet mode. Further facts are omitted, as in ironic-python-agent.
func (s *Source) infiniBand(name string, address net.HardwareAddr, facts linkFacts) *Interface {
	sys := func(elem string) string { return s.o.System.Sys("class/net", name, elem) }
	return &Interface{
		Name:        name,
		MACAddress:  dhcp.EthernetMAC(address).String(),
		IPv4Address: orNull(facts.ipv4),
		HasCarrier:  s.text(sys("carrier")) == "1",
		Vendor:      orNull(s.text(sys("device/vendor"))),
		Product:     orNull(s.text(sys("device/device"))),
		ClientID:    orNull(clientIDPrefix + dhcp.PortGUID(address).String()),
	}
}
