package facts

import (
	"cmp"
	"slices"
	"strconv"
	"strings"
	"testing"
)

type pciDevice struct {
	Vendor   string  `json:"vendor_id"`
	Product  string  `json:"product_id"`
	Class    string  `json:"class"`
	Revision *string `json:"revision"`
	Bus      string  `json:"bus"`
	NUMANode *string `json:"numa_node_id"`
}

// pci returns the rows of lspci by address. The revision is 0 and the NUMA node unknown where lspci reports none.
func (f found) pci() map[string]pciDevice {
	devices := map[string]pciDevice{}
	for _, b := range f.blocks("lspci.txt") {
		revision, node := cmp.Or(b["Rev"], "00"), cmp.Or(b["NUMANode"], "-1")
		devices[b["Slot"]] = pciDevice{
			Vendor: b["Vendor"], Product: b["Device"], Class: b["Class"] + b["ProgIf"], Revision: &revision,
			Bus: b["Slot"], NUMANode: &node,
		}
	}
	return devices
}

// checkPCI compares the collector pci-devices with lspci.
func checkPCI(t *testing.T, f found) {
	got := map[string]pciDevice{}
	for _, d := range f.ours(t).PCI {
		got[d.Bus] = d
	}
	same(t, "pci_devices", f.pci(), got)
}

type usbDevice struct{ Product, Vendor, Handle string }

// checkUSB compares the collector usb-devices with lshw's devices of class generic.
func checkUSB(t *testing.T, f found) {
	theirs := []usbDevice{}
	for _, n := range f.lshw(t).all() {
		if n.Class == "generic" && strings.HasPrefix(n.ID, "usb") {
			theirs = append(theirs, usbDevice{Product: n.Product, Vendor: n.Vendor, Handle: n.Handle})
		}
	}
	if len(theirs) == 0 {
		t.Error("lshw finds no generic device on the USB, want one")
	}
	same(t, "usb_devices", theirs, f.ours(t).USB)
	if lsusb := strings.Count(string(f["lsusb.txt"]), "\n"); lsusb <= len(theirs) {
		t.Errorf("lsusb lists %d devices, want more than the generic ones", lsusb)
	}
}

type numaTopology struct {
	RAM []struct {
		Node   int   `json:"numa_node"`
		SizeKB int64 `json:"size_kb"`
	}
	CPUs []numaCore
	NICs []numaNIC
}

type numaCore struct {
	CPU      int
	Node     int   `json:"numa_node"`
	Siblings []int `json:"thread_siblings"`
}

type numaNIC struct {
	Name string
	Node int `json:"numa_node"`
}

// checkNUMA compares the collector numa-topology with lscpu (processors), the kernel (memory) and lspci (network
// cards).
func checkNUMA(t *testing.T, f found) {
	topology := f.ours(t).NUMA
	var table struct {
		CPUs []struct{ CPU, Node, Socket, Core int }
	}
	f.decode(t, "lscpu-e.json", &table)
	cores := map[[2]int][]int{} // processors by node and lscpu's core number
	for _, c := range table.CPUs {
		key := [2]int{c.Node, c.Core}
		cores[key] = append(cores[key], c.CPU)
	}
	var theirs, got [][]int // node and processors of each core
	for key, siblings := range cores {
		theirs = append(theirs, append([]int{key[0]}, siblings...))
	}
	for _, c := range topology.CPUs {
		got = append(got, append([]int{c.Node}, c.Siblings...))
	}
	slices.SortFunc(theirs, slices.Compare)
	slices.SortFunc(got, slices.Compare)
	same(t, "cores", theirs, got)

	for _, r := range topology.RAM {
		_, rest, _ := strings.Cut(string(f["meminfo.txt"]), "Node "+strconv.Itoa(r.Node)+" MemTotal:")
		if want := append(strings.Fields(rest), "")[0]; strconv.FormatInt(r.SizeKB, 10) != want {
			t.Errorf("node %d: got %d kB, want %s", r.Node, r.SizeKB, want)
		}
	}
	if len(topology.RAM) != 2 {
		t.Errorf("got the memory of %d nodes, want 2", len(topology.RAM))
	}
	pci, inventory, nodes := f.pci(), f.ours(t).Inventory, map[string]int{}
	for _, n := range topology.NICs {
		nodes[n.Name] = n.Node
	}
	compared := 0
	for _, i := range inventory.Interfaces {
		device, ok := pci[text(i.PCIAddress)]
		if !ok {
			continue
		}
		compared++
		if got := strconv.Itoa(nodes[i.Name]); got != *device.NUMANode {
			t.Errorf("%s: got node %s, want %s", i.Name, got, *device.NUMANode)
		}
	}
	if compared < 2 {
		t.Errorf("got %d network cards to compare, want two", compared)
	}
}
