package block

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"ironroot/internal/sysfs"
	"ironroot/storage/nfit"
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
	return isRAMDiskRegion(s, filepath.Dir(namespace))
}

// isRAMDiskRegion reports whether the firmware's table describes a region of the kernel as a RAM disk.
func isRAMDiskRegion(s sysfs.Root, region string) bool {
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
	ranges, err := nfit.Parse(readFile(s, s.Sys("firmware/acpi/tables/NFIT")))
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

// AttachRAMDisks makes the kernel create block devices for the RAM disks of the firmware. The kernel's driver of
// persistent memory maps pages in units of 2 MiB and rejects a RAM disk that is not aligned to them, as those of OVMF
// are not. It needs no such pages in raw mode, which AttachRAMDisks selects. Other persistent memory is not changed.
// Devices that the kernel has created already, and a driver that is not loaded yet, are no errors: the driver finds the
// mode when it is loaded.
func AttachRAMDisks(s sysfs.Root) error {
	var errs []error
	for _, name := range names(s.Sys("bus/nd/devices")) {
		if !strings.HasPrefix(name, "namespace") {
			continue
		}
		if err := attachRAMDisk(s, name); err != nil {
			errs = append(errs, fmt.Errorf("RAM disk of the firmware, %s: %w", name, err))
		}
	}
	return errors.Join(errs...)
}

func attachRAMDisk(s sysfs.Root, name string) error {
	namespace, err := filepath.EvalSymlinks(s.Sys("bus/nd/devices", name))
	if err != nil {
		return nil //nolint:nilerr // it disappeared
	}
	attached := func() bool { return exists(filepath.Join(namespace, "driver")) }
	if attached() || !isRAMDiskRegion(s, filepath.Dir(namespace)) {
		return nil
	}
	if err := writeAttribute(filepath.Join(namespace, "force_raw"), "1"); err != nil {
		return err
	}
	err = writeAttribute(s.Sys("bus/nd/drivers/nd_pmem/bind"), name)
	if errors.Is(err, fs.ErrNotExist) || attached() { // the driver itself can have been first
		return nil
	}
	return err
}

// writeAttribute writes a file of sysfs, which must exist.
func writeAttribute(path, value string) error {
	f, err := os.OpenFile(path, os.O_WRONLY, 0)
	if err != nil {
		return err
	}
	_, err = f.WriteString(value)
	return errors.Join(err, f.Close())
}
