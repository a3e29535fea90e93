package networkdata

import (
	"encoding/json"
	"fmt"
	"net"
	"net/netip"
	"strconv"
	"strings"
)

// scalar is a value that generators write as a string or as a number. "" means null or not given.
type scalar string

// UnmarshalJSON accepts a string, a number, a boolean or null.
func (s *scalar) UnmarshalJSON(raw []byte) error {
	var value any
	decoder := json.NewDecoder(strings.NewReader(string(raw)))
	decoder.UseNumber()
	if err := decoder.Decode(&value); err != nil {
		return err
	}
	switch value := value.(type) {
	case nil:
		*s = ""
	case string:
		*s = scalar(strings.TrimSpace(value))
	case json.Number:
		*s = scalar(value.String())
	case bool:
		*s = map[bool]scalar{false: "0", true: "1"}[value]
	default:
		return fmt.Errorf("got %.40s, want a string or a number", raw)
	}
	if len(*s) > maxText {
		return fmt.Errorf("got %d bytes, want at most %d", len(*s), maxText)
	}
	return nil
}

// scalars is a list, or a string with elements separated by spaces or commas.
type scalars []scalar

// UnmarshalJSON accepts a list of scalars or a single scalar.
func (l *scalars) UnmarshalJSON(raw []byte) error {
	if strings.HasPrefix(strings.TrimSpace(string(raw)), "[") {
		return json.Unmarshal(raw, (*[]scalar)(l))
	}
	var s scalar
	if err := json.Unmarshal(raw, &s); err != nil {
		return err
	}
	*l = nil
	for _, element := range strings.FieldsFunc(string(s), func(r rune) bool { return r == ' ' || r == ',' }) {
		*l = append(*l, scalar(element))
	}
	return nil
}

// number parses an integer from low to high.
func (s scalar) number(low, high int) (int, error) {
	value, err := strconv.Atoi(string(s))
	if err != nil || value < low || value > high {
		return 0, fmt.Errorf("got %q, want %d to %d", s, low, high)
	}
	return value, nil
}

// mac parses the MAC address of an Ethernet link. It returns nil if none is given.
func (s scalar) mac() (net.HardwareAddr, error) {
	if s == "" {
		return nil, nil
	}
	mac, err := net.ParseMAC(string(s))
	const group = 1 // bit of the first byte that is set in group addresses
	if err != nil || len(mac) != 6 || mac[0]&group != 0 || mac.String() == "00:00:00:00:00:00" {
		return nil, fmt.Errorf("got %q, want the MAC address of a network card", s)
	}
	return mac, nil
}

// address parses the IP address of a host. It drops the zone, because the link is known.
func (s scalar) address() (netip.Addr, error) {
	address, err := netip.ParseAddr(string(s))
	address = address.Unmap().WithZone("")
	if err != nil || address.IsUnspecified() || address.IsLoopback() || address.IsMulticast() ||
		address.Is4() && (address.As4()[0] == 0 || address.As4()[0] >= 240) {
		return netip.Addr{}, fmt.Errorf("got %q, want the IP address of a machine", s)
	}
	return address, nil
}

// bits parses a subnet's prefix length: a number, or a mask of the same address family.
func (s scalar) bits(family netip.Addr) (int, error) {
	wrong := fmt.Errorf("got netmask %q, want a mask or prefix length for %v", s, family)
	if length, err := strconv.Atoi(strings.TrimPrefix(string(s), "/")); err == nil {
		if length < 0 || length > family.BitLen() {
			return 0, wrong
		}
		return length, nil
	}
	mask, err := netip.ParseAddr(string(s))
	if err != nil || mask.BitLen() != family.BitLen() || mask.Zone() != "" {
		return 0, wrong
	}
	ones, size := net.IPMask(mask.AsSlice()).Size()
	if size == 0 {
		return 0, wrong // ones after a zero
	}
	return ones, nil
}

// prefix parses an address. If it has no prefix length, mask is used.
func (s scalar) prefix(mask scalar) (netip.Prefix, error) {
	text, length, both := strings.Cut(string(s), "/")
	if both {
		mask = scalar(length)
	}
	address, err := netip.ParseAddr(text)
	if err != nil {
		return netip.Prefix{}, fmt.Errorf("got %q, want an IP address", s)
	}
	address = address.Unmap().WithZone("")
	if mask == "" {
		return netip.Prefix{}, fmt.Errorf("%s has no netmask", s)
	}
	bits, err := mask.bits(address)
	if err != nil {
		return netip.Prefix{}, err
	}
	return netip.PrefixFrom(address, bits), nil
}
