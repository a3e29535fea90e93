package block

import (
	"context"
	"fmt"
	"os"

	"ironroot/storage/sysfs"
)

// maxMediaSize is the size limit in bytes of a virtual USB stick. Larger ones may be real disks.
const maxMediaSize = 4 << 30

// IsSmallUSBDisk reports whether a device has the type, transport and size of a virtual USB stick. Real disks can have
// them too: see [IsVirtualMedia].
func (d Device) IsSmallUSBDisk() bool {
	return d.Type == "disk" && d.Transport == "usb" && d.Size < maxMediaSize
}

// All lists all block devices of any type that have a size, without partitions.
func All(ctx context.Context, s sysfs.Root) ([]Device, error) {
	entries, err := os.ReadDir(s.Sys("block"))
	if err != nil {
		return nil, fmt.Errorf("list block devices: %w", err)
	}
	var devices []Device
	for _, entry := range entries {
		if err := ctx.Err(); err != nil {
			return nil, err
		}
		device, err := Find(s, entry.Name())
		if err != nil || device.Size == 0 {
			continue // unplugged in the meantime, or a drive without a medium
		}
		devices = append(devices, device)
	}
	return devices, nil
}

// IsVirtualMedia reports whether a device may be attached by a BMC or the firmware: an optical drive, a whole USB disk
// below 4 GiB that is removable or write-protected, or a RAM disk that the firmware's table describes as one. The
// content of a USB disk cannot change whether it is removable or write-protected. QEMU presents a removable one with
// removable=on. Other BMCs (iDRAC, iLO, AMI's, OpenBMC) were not measured. Built-in disks are neither, but USB sticks
// and cards in built-in SD card readers are removable too.
//
// A partition, or a device made of others, never is virtual media, because a previous owner of the disk could have
// labelled it.
func IsVirtualMedia(s sysfs.Root, name string) (bool, error) {
	device, err := Find(s, name)
	if err != nil {
		return false, err
	}
	if lower := names(s.Sys("class/block", device.Name, "slaves")); len(lower) > 0 {
		return false, nil // a map or an array
	}
	return device.Type == "rom" || device.Type == RAMDisk ||
		device.IsSmallUSBDisk() && (device.Removable || device.ReadOnly), nil
}
