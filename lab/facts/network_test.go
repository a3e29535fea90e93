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

// link is a row of ip.
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
		i := inventory.Interface{Name: l.IfName, MACAddress: l.Address, HasCarrier: slices.Contains(l.Flags, "LOWER_UP")}
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
			speed = cmp.Or(supported(ethtool[l.IfName]), speed) // ethtool ascribes the modes of a card to its VLANs too
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

// supported returns the highest speed that ethtool lists below "Supported link modes", and 0 without such modes.
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

// listed says which interfaces Ironic hears of: hardware, VLANs and bonds, but nothing whose MAC address begins with fa:.
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

// hardware fills in what ethtool and lspci say of a network card, and ip of its place. Behind virtio is a PCI device with
// other numbers than the virtio device has, which are what Ironic is told; ethtool calls that driver by a name of its own.
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
		i.Vendor, i.Product, i.Driver = orNull("0x"+device.Vendor), orNull("0x"+device.Product), orNull(values["driver"])
	}
}

// checkMACs says once more in so many words which interfaces there are: the three cards whose MAC address does not begin
// with fa:, one of them with the address that it had before it was changed, its VLAN with the new one, and two bonds.
func checkMACs(t *testing.T, f found) {
	var got []string
	bonds := 0
	for _, i := range f.ours(t).Inventory.Interfaces {
		if i.Name == "bond0" || i.Name == "team-a" {
			bonds++ // whose addresses the kernel made up
			continue
		}
		got = append(got, i.MACAddress)
	}
	slices.Sort(got)
	same(t, "MAC addresses", []string{"02:00:00:c0:ff:ee", "52:54:00:fa:c7:01", "52:54:00:fa:c7:02", "52:54:00:fa:c7:04"}, got)
	if bonds != 2 {
		t.Errorf("got %d bonds, want 2", bonds)
	}
}
