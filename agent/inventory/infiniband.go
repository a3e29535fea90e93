package inventory

const (
	mellanox       = "0x15b3" // PCI vendor
	infiniBandText = 59       // length of an InfiniBand address: twenty bytes separated by colons
)

// clientIDPrefix begins the DHCP client identifier (option 61) of an InfiniBand port: type 255, an IAID, and a DUID by
// Mellanox's enterprise number. The port's GUID follows.
const clientIDPrefix = "ff:00:00:00:00:00:02:00:00:02:c9:00:"

// infiniBand describes a port of a Mellanox adapter in InfiniBand mode. Its MAC address, which Ironic knows the port
// by, is that of the Ethernet mode: the GUID without the two bytes in its middle. Further facts are omitted, as
// ironic-python-agent does.
func (s *Source) infiniBand(name, address string, facts linkFacts) *Interface {
	const guid, middle, tail = 36, 45, 51 // offsets of the GUID, its two middle bytes and its last three
	sys := func(elem string) string { return s.o.System.Sys("class/net", name, elem) }
	return &Interface{
		Name:        name,
		MACAddress:  address[guid:middle] + address[tail:],
		IPv4Address: orNull(facts.ipv4),
		HasCarrier:  s.text(sys("carrier")) == "1",
		Vendor:      orNull(s.text(sys("device/vendor"))),
		Product:     orNull(s.text(sys("device/device"))),
		ClientID:    orNull(clientIDPrefix + address[guid:]),
	}
}
