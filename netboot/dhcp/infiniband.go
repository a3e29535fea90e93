package dhcp

import (
	"net"
	"slices"
)

// An address of IP over InfiniBand (RFC 4391, section 9.1.1) is a queue pair number, which changes with each boot, and
// the identifier of the port, which ends with its GUID.
const (
	InfiniBandLen = 20 // bytes
	guidLen       = 8
)

// IsInfiniBand reports whether a MAC address is one of InfiniBand.
func IsInfiniBand(mac net.HardwareAddr) bool { return len(mac) == InfiniBandLen }

// PortGUID returns the part of an InfiniBand address that does not change.
func PortGUID(mac net.HardwareAddr) net.HardwareAddr { return mac[InfiniBandLen-guidLen:] }

// EthernetMAC returns the MAC address that an InfiniBand port has in Ethernet mode, and that OpenStack knows it by: the
// GUID without the two bytes in its middle.
func EthernetMAC(mac net.HardwareAddr) net.HardwareAddr {
	guid := PortGUID(mac)
	return slices.Concat(guid[:3], guid[5:])
}
