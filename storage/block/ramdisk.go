package block

import (
	"path/filepath"
	"strconv"
	"strings"

	"ironroot/storage/nfit"
	"ironroot/storage/sysfs"
)

// RAMDisk is the type of a RAM disk that the firmware has created: the image of UEFI HTTP boot. It is not a disk of
// the machine: the image is gone after the next start.
const RAMDisk = "ramdisk"

// isFirmwareRAMDisk reports whether a block device is a RAM disk of the firmware. The firmware's table NFIT must
// describe the whole memory of the device as one. If the table or the device's address cannot be read, the device is
// persistent memory: it is not trusted, and erased like a disk.
func isFirmwareRAMDisk(s sysfs.Root, name string) bool {
	if !strings.HasPrefix(name, "pmem") {
		return false
	}
	namespace, err := filepath.EvalSymlinks(s.Sys("class/block", name, "device"))
	if err != nil || !strings.HasPrefix(filepath.Base(namespace), "namespace") {
		return false // with a layer between the memory and the device, which has metadata of its own
	}
	region := filepath.Dir(namespace)
	number := func(file string, base int) (uint64, bool) {
		n, err := strconv.ParseUint(strings.TrimPrefix(readText(s, filepath.Join(region, file)), "0x"), base, 64)
		return n, err == nil
	}
	index, hasIndex := number("nfit/range_index", 10)
	base, hasBase := number("resource", 16)
	size, hasSize := number("size", 10)
	if !hasIndex || !hasBase || !hasSize {
		return false
	}
	ranges, err := nfit.Parse(readFile(s, s.Sys(nfit.TableFile)))
	if err != nil {
		return false
	}
	found := false
	for _, r := range ranges { // OVMF describes each RAM disk with index 0
		if uint64(r.Index) != index || r.Base != base || r.Size != size {
			continue
		}
		if !r.IsRAMDisk() {
			return false
		}
		found = true
	}
	return found
}
