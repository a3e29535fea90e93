package facts

import (
	"cmp"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"ironroot/agent/inventory"
)

// link is an entry of ip's output.
type link struct {
	IfName    string
	Flags     []string
	Address   string
	PermAddr  string
	ParentDev string
	LinkInfo  struct {
		Kind string `json:"info_kind"`
	}
	Addresses []struct{ Family, Local, Scope string } `json:"addr_info"`
}

// checkInterfaces compares the interfaces with ip, ethtool, lspci and lshw.
func checkInterfaces(t *testing.T, f found) {
	var links []link
	f.decode(t, "ip.json", &links)
	ethtool, pci, capacity := f.sections("ethtool.txt"), f.pci(), map[string]int{}
	for _, n := range f.lshw(t).all() {
		if name, ok := n.LogicalName.(string); ok && n.Class == "network" {
			capacity[name] = int(max(n.Capacity, n.Size) / 1e6)
		}
	}
	theirs := map[string]inventory.Interface{}
	for _, l := range links {
		if !listed(l) {
			continue
		}
		i := inventory.Interface{
			Name: l.IfName, MACAddress: l.Address, HasCarrier: slices.Contains(l.Flags, "LOWER_UP"),
		}
		if l.PermAddr != "" {
			i.MACAddress = l.PermAddr
		}
		for _, a := range l.Addresses {
			switch {
			case a.Family == "inet" && i.IPv4Address == nil:
				i.IPv4Address = orNull(a.Local)
			case a.Family == "inet6" && i.IPv6Address == nil && a.Scope == "link":
				i.IPv6Address = orNull(a.Local + "%" + l.IfName)
			case a.Family == "inet6" && i.IPv6Address == nil:
				i.IPv6Address = orNull(a.Local)
			}
		}
		speed := capacity[l.IfName]
		if l.LinkInfo.Kind == "" {
			hardware(&i, l, ethtool[l.IfName], pci)
			speed = cmp.Or(supported(ethtool[l.IfName]), speed) // ethtool repeats a card's modes for its VLANs
		}
		if speed > 0 {
			i.SpeedMbps = &speed
		}
		theirs[l.IfName] = i
	}
	got := map[string]inventory.Interface{}
	for _, i := range f.ours(t).Inventory.Interfaces {
		got[i.Name] = i
	}
	same(t, "interfaces", theirs, got)
}

// linkMode matches the speed in the name of a link mode.
var linkMode = regexp.MustCompile(`\b([0-9]+)base`)

// supported returns the highest speed in ethtool's list "Supported link modes", or 0 if the list has none.
func supported(ethtool string) int {
	_, modes, _ := strings.Cut(ethtool, "Supported link modes:")
	modes, _, _ = strings.Cut(modes, "Supported pause frame use:")
	best := 0
	for _, m := range linkMode.FindAllStringSubmatch(modes, -1) {
		if speed, err := strconv.Atoi(m[1]); err == nil {
			best = max(best, speed)
		}
	}
	return best
}

// listed reports whether the inventory contains the interface: hardware, VLANs and bonds, except hardware whose MAC
// address starts with fa:.
func listed(l link) bool {
	switch l.LinkInfo.Kind {
	case "bond", "vlan":
		return true
	case "":
		return !slices.Contains(l.Flags, "LOOPBACK") && !strings.HasPrefix(l.Address, "fa:")
	default:
		return false
	}
}

// hardware sets the fields of a network card from ethtool, lspci and ip. For virtio cards the inventory has the vendor
// and product of the virtio device, which differ from its PCI device's, and the kernel's name of the driver, which
// ethtool abbreviates.
func hardware(i *inventory.Interface, l link, ethtool string, pci map[string]pciDevice) {
	values := map[string]string{}
	for line := range strings.Lines(ethtool) {
		if key, value, ok := strings.Cut(strings.TrimSpace(line), ": "); ok {
			values[key] = value
		}
	}
	i.PCIAddress = orNull(l.ParentDev)
	if device := pci[values["bus-info"]]; device.Vendor == "1af4" {
		i.Vendor, i.Product, i.Driver = orNull("0x1af4"), orNull("0x0001"), orNull("virtio_net")
	} else {
		i.Vendor, i.Product, i.Driver = orNull("0x"+device.Vendor), orNull("0x"+device.Product),
			orNull(values["driver"])
	}
}

// checkMACs compares the MAC addresses with a fixed list: three cards whose MAC address does not start with fa:, one
// of them with the address that it had before the change, its VLAN with the new address, and two bonds.
func checkMACs(t *testing.T, f found) {
	var got []string
	bonds := 0
	for _, i := range f.ours(t).Inventory.Interfaces {
		if i.Name == "bond0" || i.Name == "team-a" {
			bonds++ // checkInterfaces compares their addresses
			continue
		}
		got = append(got, i.MACAddress)
	}
	slices.Sort(got)
	same(t, "MAC addresses",
		[]string{"02:00:00:c0:ff:ee", "52:54:00:fa:c7:01", "52:54:00:fa:c7:02", "52:54:00:fa:c7:04"}, got)
	if bonds != 2 {
		t.Errorf("got %d bonds, want 2", bonds)
	}
}
