package inventory

import (
	"context"
	"errors"

	"github.com/vishvananda/netlink"

	"ironroot/netboot/listing"
)

func (k kernelNetwork) facts(context.Context) (map[string]linkFacts, error) {
	// An interrupted dump is sufficient.
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
		k.log.Warn("link modes incomplete, using current speeds of sysfs", "err", err)
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
