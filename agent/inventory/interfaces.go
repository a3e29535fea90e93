package inventory

import (
	"cmp"
	"context"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"ironroot/netboot/dhcp"
	"ironroot/storage/sysfs"
)

// vlanName matches the conventional name of a VLAN interface, "eth0.100".
var vlanName = regexp.MustCompile(`^.+\.[0-9]+$`)

// network provides facts about interfaces that are not in sysfs.
type network interface {
	// facts returns the facts by interface name.
	facts(ctx context.Context) (map[string]linkFacts, error)
}

type linkFacts struct {
	permanent net.HardwareAddr // nil if unknown
	ipv4      string           // "" without one
	ipv6      string           // link-local ones with their scope
	speedMbps int              // fastest mode that the hardware supports, 0 if unknown
}

type noNetwork struct{}

func (noNetwork) facts(context.Context) (map[string]linkFacts, error) { return nil, nil }

// interfaceKind is the kind of a network interface. Its values are in the order of the inventory: Ironic's hook
// parse-lldp reads only the first 64 interfaces, and only physical cards have neighbours.
type interfaceKind int

const (
	unlisted interfaceKind = iota // lo, bridges, tunnels
	physical
	bond
	virtualFunction // of SR-IOV
	vlan
)

// Interfaces returns the network interfaces of the machine that have a MAC address: physical cards, bonds, virtual
// functions and VLANs, in this order, each sorted by name.
func (s *Source) Interfaces(ctx context.Context) ([]Interface, error) {
	dir := s.o.System.Sys("class/net")
	entries, err := os.ReadDir(dir)
	if err != nil {
		return nil, fmt.Errorf("list network interfaces: %w", err)
	}
	facts, err := s.net.facts(ctx)
	if err != nil {
		s.o.Log.Warn("interfaces without addresses", "err", err)
	}
	var names []string
	kinds := map[string]interfaceKind{}
	for _, entry := range entries {
		name := entry.Name()
		if kinds[name] = kindOf(dir, name); kinds[name] != unlisted {
			names = append(names, name)
		}
	}
	slices.SortStableFunc(names, func(a, b string) int { return cmp.Compare(kinds[a], kinds[b]) })
	list := []Interface{}
	for i, found := range sysfs.Each(names, func(name string) *Interface { return s.describe(name, facts[name]) }) {
		if found == nil {
			s.o.Log.Debug("interface without MAC address skipped", "interface", names[i])
			continue
		}
		list = append(list, *found)
	}
	return list, nil
}

// kindOf returns the kind of an interface of the directory class/net of sysfs.
func kindOf(dir, name string) interfaceKind {
	if _, err := os.Lstat(filepath.Join(dir, name, "device")); err == nil {
		if _, err := os.Lstat(filepath.Join(dir, name, "device/physfn")); err == nil {
			return virtualFunction
		}
		return physical
	}
	if info, err := os.Stat(filepath.Join(dir, name, "bonding")); err == nil && info.IsDir() {
		return bond
	}
	if vlanName.MatchString(name) {
		return vlan
	}
	return unlisted
}

// describe returns nil for an interface without a MAC address.
func (s *Source) describe(name string, facts linkFacts) *Interface {
	sys := func(elem string) string { return s.o.System.Sys("class/net", name, elem) }
	mac := facts.permanent.String()
	if allZero(facts.permanent) {
		mac = strings.ToLower(s.text(sys("address")))
	}
	// Addresses that begin with fa: belong to virtual functions and management links, which Ironic must not receive.
	if mac == "" || strings.HasPrefix(mac, "fa:") {
		return nil
	}
	vendor := s.text(sys("device/vendor"))
	if address, err := net.ParseMAC(mac); err == nil && vendor == mellanox && dhcp.IsInfiniBand(address) {
		return s.infiniBand(name, address, facts)
	}
	i := &Interface{
		Name:        name,
		MACAddress:  mac,
		IPv4Address: orNull(facts.ipv4),
		IPv6Address: orNull(facts.ipv6),
		HasCarrier:  s.text(sys("carrier")) == "1",
		Vendor:      orNull(vendor),
		Product:     orNull(s.text(sys("device/device"))),
		PCIAddress:  orNull(linkBase(sys("device"))),
		Driver:      orNull(linkBase(sys("device/driver"))),
	}
	if i.PCIAddress == nil {
		return i // a bond or a VLAN, which has no speed of its own
	}
	speed := facts.speedMbps
	if speed == 0 {
		// -1 is the kernel's "unknown". Reading the file of an interface that is down fails.
		speed, _ = strconv.Atoi(s.text(sys("speed")))
	}
	if speed > 0 {
		i.SpeedMbps = &speed
	}
	return i
}

func allZero(addr net.HardwareAddr) bool {
	for _, b := range addr {
		if b != 0 {
			return false
		}
	}
	return true
}

// linkBase returns the last element of a symbolic link's target, "" if there is no link.
func linkBase(path string) string {
	target, err := os.Readlink(path)
	if err != nil {
		return ""
	}
	return filepath.Base(target)
}
