package block

import (
	"os"
	"path/filepath"
	"testing"

	"ironroot/storage/nfit"
	"ironroot/storage/nfit/nfittest"
)

// A RAM disk of the firmware is a medium and no disk. All other persistent memory is a disk and no medium, also where
// the firmware's table or the kernel's description cannot be read, or where they differ.
func TestFirmwareRAMDisk(t *testing.T) {
	const (
		region = "sys/devices/LNXSYSTM:00/ACPI0012:00/ndbus0/region7/"
		table  = "sys/firmware/acpi/tables/NFIT"
	)
	cd := nfit.Range{Index: 7, Type: nfit.VirtualCD, Base: 4 << 30, Size: gib}
	other, memory := cd, cd
	other.Base, memory.Type = 8<<30, nfittest.Persistent
	for _, c := range []struct {
		what          string
		kind          nfit.Range
		file, content string // of the kernel's description
		want          bool
	}{
		{"virtual CD", cd, "", "", true},
		{"virtual disk", nfit.Range{Index: 7, Type: nfit.VirtualDisk, Base: 1 << 20, Size: gib}, "", "", true},
		{"persistent memory", memory, "", "", false},
		{"damaged table", cd, table, "NFIT", false},
		{"other table", cd, table, string(nfittest.Table(other)), false},
		{"second RAM disk", cd, table, string(nfittest.Table(other, cd)), true},
		{"described twice", cd, table, string(nfittest.Table(cd, memory)), false},
		{"other range", cd, region + "nfit/range_index", "8\n", false},
		{"other address", cd, region + "resource", "0x140000000\n", false},
		{"unknown address", cd, region + "resource", "", false},
		{"other size", cd, region + "size", "4096\n", false},
		{"unknown size", cd, region + "size", "", false},
		{"not described by the table", cd, region + "nfit/range_index", "", false},
	} {
		t.Run(c.what, func(t *testing.T) {
			tr := newTree(t)
			nfittest.Machine(t, tr.root, c.kind)
			if c.file != "" {
				tr.file(c.file, c.content)
			}
			tr.ramDisk("pmem7", c.want)
		})
	}
	t.Run("metadata of its own", func(t *testing.T) {
		tr := newTree(t)
		nfittest.Machine(t, tr.root, cd)
		device := filepath.Join(tr.root, region, "namespace7.0/block/pmem7/device")
		if err := os.Remove(device); err != nil {
			t.Fatal(err)
		}
		tr.mkdir(region + "btt7.0")
		tr.link(region+"btt7.0", region+"namespace7.0/block/pmem7/device")
		tr.ramDisk("pmem7", false)
	})
}

// ramDisk checks whether a device is a RAM disk of the firmware.
func (tr tree) ramDisk(name string, want bool) {
	tr.t.Helper()
	disks, err := Disks(tr.t.Context(), tr.system())
	if err != nil {
		tr.t.Fatal(err)
	}
	medium, err := IsVirtualMedia(tr.system(), name)
	if err != nil {
		tr.t.Fatal(err)
	}
	if medium != want || len(disks) != map[bool]int{false: 1}[want] {
		tr.t.Errorf("got medium %t and disks %v, want medium %t, and a disk if it is none", medium, disks, want)
	}
}
