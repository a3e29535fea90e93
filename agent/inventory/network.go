package inventory

import (
	"context"
	"errors"
	"net"
	"regexp"
	"strconv"

	"github.com/mdlayher/ethtool"
	"github.com/vishvananda/netlink"

	"ironroot/netboot/listing"
)

// kernelNetwork asks the running kernel by rtnetlink and by the ethtool family of generic netlink.
type kernelNetwork struct{}

func (kernelNetwork) facts(context.Context) (map[string]linkFacts, error) {
	// What changes all the time is complete enough for us.
	links, err := listing.Links()
	if err != nil && !errors.Is(err, netlink.ErrDumpInterrupted) {
		return nil, err
	}
	addresses, err := listing.Addresses()
	if err != nil && !errors.Is(err, netlink.ErrDumpInterrupted) {
		return nil, err
	}
	speeds := linkSpeeds()
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

// linkSpeeds returns the fastest mode of every interface in Mbit/s. Old kernels without ethtool over netlink know none;
// then sysfs tells the speed of the moment.
func linkSpeeds() map[string]int {
	client, err := ethtool.New()
	if err != nil {
		return nil
	}
	defer client.Close() //nolint:errcheck // only asked
	modes, err := client.LinkModes()
	if err != nil {
		return nil
	}
	speeds := map[string]int{}
	for _, mode := range modes {
		best := 0
		for _, m := range mode.Ours {
			best = max(best, modeSpeed(m.Name))
		}
		speeds[mode.Interface.Name] = best
	}
	return speeds
}

var speedOfMode = regexp.MustCompile(`^([0-9]+)base`)

// modeSpeed reads the Mbit/s out of the name of a link mode, "10000baseT/Full"; 0 for those that name none ("TP").
func modeSpeed(name string) int {
	m := speedOfMode.FindStringSubmatch(name)
	if m == nil {
		return 0
	}
	speed, err := strconv.Atoi(m[1])
	if err != nil {
		return 0
	}
	return speed
}
