package inventory

import (
	"encoding/binary"
	"testing"

	"github.com/mdlayher/netlink"
	"golang.org/x/sys/unix"
)

// mode is a bit of a set of link modes.
type mode struct {
	index      uint32
	name       string
	advertised bool
}

// linkModes returns a reply of the kernel to ETHTOOL_MSG_LINKMODES_GET, with bit sets that are not compact.
func linkModes(t testing.TB, name string, modes ...mode) []byte {
	t.Helper()
	nested := func(f func(*netlink.AttributeEncoder)) func(*netlink.AttributeEncoder) error {
		return func(e *netlink.AttributeEncoder) error {
			f(e)
			return nil
		}
	}
	e := netlink.NewAttributeEncoder()
	e.Nested(unix.ETHTOOL_A_LINKMODES_HEADER, nested(func(e *netlink.AttributeEncoder) {
		e.Uint32(unix.ETHTOOL_A_HEADER_DEV_INDEX, 2)
		e.String(unix.ETHTOOL_A_HEADER_DEV_NAME, name)
	}))
	e.Nested(unix.ETHTOOL_A_LINKMODES_OURS, nested(func(e *netlink.AttributeEncoder) {
		e.Uint32(unix.ETHTOOL_A_BITSET_SIZE, 128)
		e.Nested(unix.ETHTOOL_A_BITSET_BITS, nested(func(e *netlink.AttributeEncoder) {
			for _, m := range modes {
				e.Nested(unix.ETHTOOL_A_BITSET_BITS_BIT, nested(func(e *netlink.AttributeEncoder) {
					e.Uint32(unix.ETHTOOL_A_BITSET_BIT_INDEX, m.index)
					e.String(unix.ETHTOOL_A_BITSET_BIT_NAME, m.name)
					e.Flag(unix.ETHTOOL_A_BITSET_BIT_VALUE, m.advertised)
				}))
			}
		}))
	}))
	e.Uint32(unix.ETHTOOL_A_LINKMODES_SPEED, 100)
	data, err := e.Encode()
	if err != nil {
		t.Fatal(err)
	}
	return data
}

// Parity: G4
func TestParseLinkModes(t *testing.T) {
	autoneg := mode{6, "Autoneg", true}
	for _, test := range []struct {
		name  string
		modes []mode
		want  int
	}{
		{"no modes", nil, 0},
		{"all advertised", []mode{{1, "10baseT/Full", true}, {5, "1000baseT/Full", true}, autoneg}, 1000},
		{"fastest not advertised", []mode{{3, "100baseT/Full", true}, {5, "1000baseT/Full", false}, autoneg}, 1000},
		{"nothing advertised", []mode{{12, "10000baseT/Full", false}}, 10000},
		{"mode 93", []mode{{93, "800000baseCR8/Full", true}}, 800000},
		{
			"last mode of Linux 6.16",
			[]mode{{38, "100000baseCR4/Full", true}, {120, "800000baseVR4/Full", true}},
			800000,
		},
		{"mode of a later kernel", []mode{{4_000_000_000, "3200000baseXR8/Full", true}}, 3200000},
		{
			"speed out of range",
			[]mode{{12, "10000baseT/Full", true}, {200, "99999999999999999999baseT/Full", true}},
			10000,
		},
	} {
		t.Run(test.name, func(t *testing.T) {
			name, speed, err := parseLinkModes(linkModes(t, "eth0", test.modes...))
			if err != nil || name != "eth0" || speed != test.want {
				t.Errorf("got interface %q, speed %d, error %v, want eth0, %d", name, speed, err, test.want)
			}
		})
	}
}

// A reply that is truncated within an attribute is an error, at any level.
func TestParseLinkModesTruncated(t *testing.T) {
	whole := linkModes(t, "eth0", mode{5, "1000baseT/Full", true}, mode{93, "800000baseCR8/Full", true})
	ends := map[int]bool{0: true} // of attributes
	for at := 0; at < len(whole); {
		at += (int(binary.NativeEndian.Uint16(whole[at:])) + 3) &^ 3
		ends[at] = true
	}
	for n := range whole {
		if _, speed, err := parseLinkModes(whole[:n]); (err == nil) != ends[n] || err == nil && speed > 800000 {
			t.Errorf("%d of %d bytes: got speed %d and %v, want an error: %v", n, len(whole), speed, err, !ends[n])
		}
	}
	e := netlink.NewAttributeEncoder()
	e.Bytes(netlink.Nested|unix.ETHTOOL_A_LINKMODES_OURS, []byte{200, 0, 1, 0})
	data, err := e.Encode()
	if err != nil {
		t.Fatal(err)
	}
	if _, speed, err := parseLinkModes(data); err == nil {
		t.Errorf("bit set cut short: got speed %d, want an error", speed)
	}
}

// Unknown attributes of later kernels are ignored.
func TestParseLinkModesUnknownAttribute(t *testing.T) {
	nested := func(kind uint16, f func(*netlink.AttributeEncoder)) func(*netlink.AttributeEncoder) {
		return func(e *netlink.AttributeEncoder) {
			e.Nested(kind, func(e *netlink.AttributeEncoder) error {
				f(e)
				return nil
			})
		}
	}
	bit := func(name string) func(*netlink.AttributeEncoder) {
		return func(e *netlink.AttributeEncoder) { e.String(unix.ETHTOOL_A_BITSET_BIT_NAME, name) }
	}
	e := netlink.NewAttributeEncoder()
	nested(unix.ETHTOOL_A_LINKMODES_OURS, nested(unix.ETHTOOL_A_BITSET_BITS, func(e *netlink.AttributeEncoder) {
		nested(unix.ETHTOOL_A_BITSET_BITS_BIT, bit("1000baseT/Full"))(e)
		nested(unix.ETHTOOL_A_BITSET_BITS_BIT+1, bit("800000baseCR8/Full"))(e)
	}))(e)
	data, err := e.Encode()
	if err != nil {
		t.Fatal(err)
	}
	if _, speed, err := parseLinkModes(data); err != nil || speed != 1000 {
		t.Errorf("got speed %d and %v, want 1000", speed, err)
	}
}

func FuzzParseLinkModes(f *testing.F) {
	f.Add(linkModes(f, "eth0", mode{5, "1000baseT/Full", true}, mode{93, "800000baseCR8/Full", false}))
	f.Fuzz(func(t *testing.T, data []byte) {
		if _, speed, _ := parseLinkModes(data); speed < 0 {
			t.Errorf("got speed %d", speed)
		}
	})
}
