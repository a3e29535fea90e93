package inventory

import (
	"errors"
	"fmt"
	"regexp"
	"strconv"

	"github.com/mdlayher/genetlink"
	"github.com/mdlayher/netlink"
	"golang.org/x/sys/unix"
)

// linkSpeeds returns the fastest mode that each interface supports, in Mbit/s, by the interface's name. It queries the
// family "ethtool" of generic netlink (Documentation/networking/ethtool-netlink.rst in Linux, since 5.6). Interfaces
// without link modes, such as virtual ones, have speed 0.
//
// It requests bit sets that are not compact: such a set contains the name of every mode, so that modes of later
// kernels need no table here. Package mdlayher/ethtool has a table and indexes it without a bounds check.
func linkSpeeds() (map[string]int, error) {
	conn, err := genetlink.Dial(nil)
	if err != nil {
		return nil, fmt.Errorf("open generic netlink: %w", err)
	}
	defer conn.Close() //nolint:errcheck // nothing was changed
	family, err := conn.GetFamily(unix.ETHTOOL_GENL_NAME)
	if err != nil {
		return nil, fmt.Errorf("find netlink family %s: %w", unix.ETHTOOL_GENL_NAME, err)
	}
	header := netlink.NewAttributeEncoder()
	// Every interface, no flags.
	header.Nested(unix.ETHTOOL_A_LINKMODES_HEADER, func(*netlink.AttributeEncoder) error { return nil })
	data, err := header.Encode()
	if err != nil {
		return nil, fmt.Errorf("encode link mode request: %w", err)
	}
	messages, err := conn.Execute(genetlink.Message{
		Header: genetlink.Header{Command: unix.ETHTOOL_MSG_LINKMODES_GET, Version: unix.ETHTOOL_GENL_VERSION},
		Data:   data,
	}, family.ID, netlink.Request|netlink.Dump)
	if err != nil {
		return nil, fmt.Errorf("list link modes: %w", err)
	}
	speeds := map[string]int{}
	var failed []error
	for _, m := range messages {
		name, speed, err := parseLinkModes(m.Data)
		if err != nil {
			failed = append(failed, fmt.Errorf("link modes of interface %q: %w", name, err))
			continue
		}
		speeds[name] = speed
	}
	return speeds, errors.Join(failed...)
}

// parseLinkModes parses a reply to ETHTOOL_MSG_LINKMODES_GET: the interface and the speed of its fastest supported
// mode. The bit set "ours" lists the supported modes; those that are also advertised have a flag, which does not
// matter here.
func parseLinkModes(data []byte) (name string, speed int, err error) {
	attributes, err := netlink.NewAttributeDecoder(data)
	if err != nil {
		return "", 0, err
	}
	for attributes.Next() {
		switch attributes.Type() {
		case unix.ETHTOOL_A_LINKMODES_HEADER:
			attributes.Nested(func(header *netlink.AttributeDecoder) error {
				for header.Next() {
					if header.Type() == unix.ETHTOOL_A_HEADER_DEV_NAME {
						name = header.String()
					}
				}
				return nil
			})
		case unix.ETHTOOL_A_LINKMODES_OURS:
			attributes.Nested(func(set *netlink.AttributeDecoder) error {
				for set.Next() {
					if set.Type() == unix.ETHTOOL_A_BITSET_BITS {
						set.Nested(func(bits *netlink.AttributeDecoder) error {
							speed = fastest(bits)
							return nil
						})
					}
				}
				return nil
			})
		}
	}
	return name, speed, attributes.Err()
}

// fastest returns the highest speed of a list of modes.
func fastest(bits *netlink.AttributeDecoder) int {
	best := 0
	for bits.Next() {
		if bits.Type() != unix.ETHTOOL_A_BITSET_BITS_BIT {
			continue
		}
		bits.Nested(func(bit *netlink.AttributeDecoder) error {
			for bit.Next() {
				if bit.Type() == unix.ETHTOOL_A_BITSET_BIT_NAME {
					best = max(best, modeSpeed(bit.String()))
				}
			}
			return nil
		})
	}
	return best
}

var speedOfMode = regexp.MustCompile(`^([0-9]+)base`)

// modeSpeed returns the Mbit/s in the name of a link mode, "10000baseT/Full"; 0 for names without a speed ("TP").
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
