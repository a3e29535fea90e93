package facts

import (
	_ "embed"
	"encoding/json"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"ironroot/agent/inventory"
)

// ipa contains the data that ironic-python-agent itself collects on the machine of [server]: its generic hardware
// manager and its collectors pci-devices, usb-devices, numa-topology and dmi-decode, at commit a9e64be51 (August
// 2026), run by Python 3.13 in the same Debian after the tools. Values that differ between two boots are removed:
// sizes of the memory that the kernel leaves, and MAC addresses that it generates.
//
//go:embed testdata/ironic-python-agent.json
var ipa []byte

// checkIPA compares the data with the recording of ironic-python-agent.
func checkIPA(t *testing.T, f found) {
	recorded := found{"ours.json": ipa}
	theirs, got := recorded.ours(t), f.ours(t)
	for _, o := range []*ours{&theirs, &got} {
		steady(o)
	}
	// The recording was made with Linux 6.1, which did not report this flag. checkCPU compares all flags with lscpu.
	got.Inventory.CPU.Flags = slices.DeleteFunc(got.Inventory.CPU.Flags,
		func(flag string) bool { return flag == "xtopology" })
	// The recorded machine had this flag, machines of lab/qemu do not.
	theirs.Inventory.CPU.Flags = slices.DeleteFunc(theirs.Inventory.CPU.Flags,
		func(flag string) bool { return flag == "erms" })
	same(t, "inventory", theirs.Inventory, got.Inventory)
	same(t, "pci_devices", theirs.PCI, got.PCI)
	// ironic-python-agent lists only USB devices that are alone on their hub, because lshw numbers the others.
	for _, d := range theirs.USB {
		if !slices.Contains(got.USB, d) {
			t.Errorf("got no USB device %v", d)
		}
	}
	same(t, "numa_topology", theirs.NUMA, got.NUMA)
	same(t, "dmi", theirs.DMI, got.DMI)

	// Null values and the set of keys are visible in the JSON only.
	var a, b struct{ Inventory map[string]any }
	for data, into := range map[*[]byte]any{&ipa: &a, ptr(f["ours.json"]): &b} {
		if err := json.Unmarshal(*data, into); err != nil {
			t.Fatal(err)
		}
	}
	if diff := cmp.Diff(shape(a.Inventory), shape(b.Inventory)); diff != "" {
		t.Errorf("keys of the inventory: theirs (-) are not ours (+):\n%s", diff)
	}
}

func ptr[T any](v T) *T { return &v }

// shape lists the keys of a description and of the objects in its lists.
func shape(description map[string]any) map[string][]string {
	keys := map[string][]string{}
	var walk func(at string, value any)
	walk = func(at string, value any) {
		switch v := value.(type) {
		case map[string]any:
			for key, inner := range v {
				if !slices.Contains(keys[at], key) {
					keys[at] = append(keys[at], key)
				}
				walk(at+"."+key, inner)
			}
		case []any:
			for _, inner := range v {
				walk(at+"[]", inner)
			}
		}
	}
	walk("inventory", description)
	for _, list := range keys {
		slices.Sort(list)
	}
	return keys
}

// steady removes what can differ between two boots of the same machine: the order of lists, numbers that drivers
// assign in the order of discovery, and which path of a disk is first.
func steady(o *ours) {
	o.Inventory.Memory.Total = 0
	o.Inventory.CPU.Frequency = "" // measured at each boot; IPA's lscpu reports none if the machine does not scale it
	for i := range o.NUMA.RAM {
		o.NUMA.RAM[i].SizeKB = 0
	}
	macs := map[string]string{} // keyed by name
	for i := range o.Inventory.Interfaces {
		n := &o.Inventory.Interfaces[i]
		macs[n.Name] = n.MACAddress
		switch {
		case n.Name == "bond0" || n.Name == "team-a":
			n.MACAddress = ""
		case strings.Contains(n.Name, "."):
			n.Name = "vlan"
		default:
			n.Name = ""
		}
		n.IPv6Address = orNull(strings.Split(text(n.IPv6Address), "%")[0])
	}
	for i := range o.NUMA.NICs {
		o.NUMA.NICs[i].Name = macs[o.NUMA.NICs[i].Name]
	}
	for i := range o.Inventory.Disks {
		d := &o.Inventory.Disks[i]
		d.Name = ""
		if d.HCTL != nil {
			_, rest, _ := strings.Cut(*d.HCTL, ":")
			d.HCTL = &rest
		}
		path := strings.NewReplacer("virtio-", "", "usbv3", "usb").Replace(text(d.ByPath))
		if strings.Contains(path, "-ata-") {
			path = strings.TrimSuffix(path, ".0")
		}
		d.ByPath = &path
	}
	slices.SortFunc(o.Inventory.Disks, func(a, b inventory.Disk) int { return strings.Compare(*a.ByPath, *b.ByPath) })
	slices.SortFunc(o.Inventory.Interfaces, func(a, b inventory.Interface) int {
		return strings.Compare(a.Name+a.MACAddress, b.Name+b.MACAddress)
	})
	slices.SortFunc(o.PCI, func(a, b pciDevice) int { return strings.Compare(a.Bus, b.Bus) })
	slices.SortFunc(o.NUMA.CPUs, func(a, b numaCore) int { return slices.Compare(a.Siblings, b.Siblings) })
	slices.SortFunc(o.NUMA.NICs, func(a, b numaNIC) int { return strings.Compare(a.Name, b.Name) })
}
