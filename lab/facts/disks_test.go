package facts

import (
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"ironroot/agent/inventory"
	"ironroot/lab/qemu"
)

// lsblkDisk is a row of lsblk's output.
type lsblkDisk struct {
	KName, Type                            string
	Size                                   int64
	Rota                                   bool
	Model, Serial, WWN, Tran, HCTL, Vendor *string
	LogicalSector                          int64 `json:"log-sec"`
	PhysicalSector                         int64 `json:"phy-sec"`
}

// checkDisks compares the disks with lsblk and udev. leftOut names block devices that are not disks: lsblk must list
// them with a size, and the inventory must not contain them.
func checkDisks(t *testing.T, f found, leftOut []string) {
	var rows struct{ BlockDevices []lsblkDisk }
	f.decode(t, "lsblk.json", &rows)
	udev := f.udev()
	theirs := map[string]inventory.Disk{}
	for _, row := range rows.BlockDevices {
		if slices.Contains(leftOut, row.KName) {
			if row.Size == 0 {
				t.Errorf("%s is empty, want one with a size that is left out all the same", row.KName)
			}
			leftOut = slices.DeleteFunc(slices.Clone(leftOut), func(name string) bool { return name == row.KName })
			continue
		}
		if row.Size == 0 {
			continue
		}
		name := "/dev/" + row.KName
		theirs[name] = inventory.Disk{
			Name: name, Model: row.Model, Size: row.Size, Rotational: row.Rota, WWN: row.WWN, Serial: row.Serial,
			Vendor: trimmed(row.Vendor), HCTL: row.HCTL, Tran: row.Tran,
			LogicalSectors: row.LogicalSector, PhysicalSectors: row.PhysicalSector,
			WWNWithExtension:   orNull(udev[row.KName]["ID_WWN_WITH_EXTENSION"]),
			WWNVendorExtension: orNull(udev[row.KName]["ID_WWN_VENDOR_EXTENSION"]),
		}
	}
	if len(leftOut) > 0 {
		t.Errorf("lsblk does not know %v, which were to be left out", leftOut)
	}
	links := f.byPath()
	got := map[string]inventory.Disk{}
	for _, d := range f.ours(t).Inventory.Disks {
		if !slices.Contains(links[path.Base(d.Name)], text(d.ByPath)) {
			t.Errorf("%s: got the path %q, want one of %q", d.Name, text(d.ByPath), links[path.Base(d.Name)])
		}
		d.ByPath = nil
		got[d.Name] = d
	}
	same(t, "disks", theirs, got)
}

// The data of a memory card on a PCI controller match Debian's tools. udev creates no by-path name for this disk.
//
// Parity: G8
func TestCard(t *testing.T) {
	f := examine(t, qemu.Config{
		Disks: []qemu.Disk{{Bus: qemu.Virtio, File: filepath.Join(t.TempDir(), "disk"), Size: 5 << 30}},
		Extra: []string{
			"-device", "sdhci-pci,id=sdhci", "-device", "sd-card,drive=card",
			"-drive", "if=none,format=raw,id=card,file=" + emptyFile(t, 64<<20),
		},
	}, 2, "facts-collectors=default")
	checkPaths(t, f)
	var rows struct{ BlockDevices []lsblkDisk }
	f.decode(t, "lsblk.json", &rows)
	isCard := func(name string) bool { return path.Base(name) == "mmcblk0" }
	row := slices.IndexFunc(rows.BlockDevices, func(d lsblkDisk) bool { return isCard(d.KName) })
	disks := f.ours(t).Inventory.Disks
	ours := slices.IndexFunc(disks, func(d inventory.Disk) bool { return isCard(d.Name) })
	if row < 0 || ours < 0 {
		t.Fatalf("got the card at %d in lsblk's list and at %d in ours, want it in both", row, ours)
	}
	theirs, card := rows.BlockDevices[row], disks[ours]
	same(t, "card", []any{theirs.Size, theirs.Serial, theirs.Tran, theirs.Model},
		[]any{card.Size, card.Serial, card.Tran, card.Model})
}

// emptyFile creates a sparse file.
func emptyFile(t *testing.T, size int64) string {
	t.Helper()
	name := filepath.Join(t.TempDir(), "empty")
	if err := os.WriteFile(name, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Truncate(name, size); err != nil {
		t.Fatal(err)
	}
	return name
}

// checkPaths compares all names below /dev/disk/by-path.
func checkPaths(t *testing.T, f found) {
	var devices []struct {
		Name    string
		ByPaths []string
	}
	f.decode(t, "disks.json", &devices)
	links := f.byPath()
	for _, d := range devices {
		slices.Sort(d.ByPaths)
		same(t, "names of "+d.Name+" by path", links[d.Name], d.ByPaths)
	}
}

// byPath returns the by-path links that udev created, sorted, by the kernel's name of the disk.
func (f found) byPath() map[string][]string {
	links := map[string][]string{}
	for line := range strings.Lines(string(f["by-path.txt"])) {
		if link, target, ok := strings.Cut(strings.TrimSpace(line), " "); ok {
			links[path.Base(target)] = append(links[path.Base(target)], link)
		}
	}
	for _, list := range links {
		slices.Sort(list)
	}
	return links
}

// udev returns udev's database: properties by the kernel's name of the device.
func (f found) udev() map[string]map[string]string {
	devices := map[string]map[string]string{}
	for paragraph := range strings.SplitSeq(string(f["udev.txt"]), "\n\n") {
		properties := map[string]string{}
		for line := range strings.Lines(paragraph) {
			if property, ok := strings.CutPrefix(strings.TrimSpace(line), "E: "); ok {
				key, value, _ := strings.Cut(property, "=")
				properties[key] = value
			}
		}
		if name, ok := strings.CutPrefix(properties["DEVNAME"], "/dev/"); ok {
			devices[name] = properties
		}
	}
	return devices
}

func orNull(text string) *string {
	if text == "" {
		return nil
	}
	return &text
}

func trimmed(text *string) *string {
	if text == nil {
		return nil
	}
	return orNull(strings.TrimSpace(*text))
}
