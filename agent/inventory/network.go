package inventory

import (
	"context"
	"errors"
	"log/slog"
	"net"

	"github.com/vishvananda/netlink"

	"ironroot/netboot/listing"
)

// kernelNetwork queries the running kernel by rtnetlink and by the ethtool family of generic netlink.
type kernelNetwork struct{ log *slog.Logger }

func (k kernelNetwork) facts(context.Context) (map[string]linkFacts, error) {
	// What changes all the time is complete enough for us.
	links, err := listing.Links()
	if err != nil && !errors.Is(err, netlink.ErrDumpInterrupted) {
		return nil, err
	}
	addresses, err := listing.Addresses()
	if err != nil && !errors.Is(err, netlink.ErrDumpInterrupted) {
		return nil, err
	}
	speeds, err := linkSpeeds()
	if err != nil {
		k.log.Warn("link modes incomplete, speeds are the present ones of sysfs", "err", err)
	}
	result := make(map[string]linkFacts, len(links))
	for _, link := range links {
		a := link.Attrs()
		f := linkFacts{permanent: a.PermHWAddr, speedMbps: speeds[a.Name]}
		for _, address := range addresses {
			if address.LinkIndex == a.Index {
				f.add(address.IP, a.Name)
			}
		}
		result[a.Name] = f
	}
	return result, nil
}

// add takes the first address of each family.
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
