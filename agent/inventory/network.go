package inventory

import (
	"context"
	"fmt"
	"regexp"
	"strconv"

	"github.com/mdlayher/ethtool"
	"github.com/vishvananda/netlink"
)

// kernelNetwork asks the running kernel by rtnetlink and by the ethtool family of generic netlink.
type kernelNetwork struct{}

func (kernelNetwork) facts(context.Context) (map[string]linkFacts, error) {
	links, err := netlink.LinkList()
	if err != nil {
		return nil, fmt.Errorf("list links: %w", err)
	}
	speeds := linkSpeeds()
	result := make(map[string]linkFacts, len(links))
	for _, link := range links {
		a := link.Attrs()
		f := linkFacts{permanent: a.PermHWAddr, speedMbps: speeds[a.Name]}
		addresses, err := netlink.AddrList(link, netlink.FAMILY_ALL)
		if err != nil {
			return nil, fmt.Errorf("list addresses of %s: %w", a.Name, err)
		}
		for _, address := range addresses {
			switch {
			case address.IP.To4() != nil:
				if f.ipv4 == "" {
					f.ipv4 = address.IP.String()
				}
			case f.ipv6 == "":
				f.ipv6 = address.IP.String()
				if address.IP.IsLinkLocalUnicast() {
					f.ipv6 += "%" + a.Name
				}
			}
		}
		result[a.Name] = f
	}
	return result, nil
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
