package inventory

import (
	"log/slog"
	"net"
)

// kernelNetwork queries the running kernel by rtnetlink and by the ethtool family of generic netlink.
type kernelNetwork struct{ log *slog.Logger }

// add stores the first address of each family.
func (f *linkFacts) add(ip net.IP, link string) {
	switch {
	case ip.To4() != nil:
		if f.ipv4 == "" {
			f.ipv4 = ip.String()
		}
	case f.ipv6 == "":
		f.ipv6 = ip.String()
		if ip.IsLinkLocalUnicast() {
			f.ipv6 += "%" + link
		}
	}
}
