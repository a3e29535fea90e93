package block

import (
	"context"
	"fmt"
	"os"
)

// maxMediaSize is the size limit in bytes of a virtual USB stick. Larger ones may be real disks.
const maxMediaSize = 4 << 30

// IsSmallUSBDisk reports whether a device has the type, transport and size of a virtual USB stick. Real disks can have
// them too: see [IsVirtualMedia].
func (d Device) IsSmallUSBDisk() bool {
	return d.Type == "disk" && d.Transport == "usb" && d.Size < maxMediaSize
}

// All lists every block device that has a size, of any type, without partitions.
func (s System) All(ctx context.Context) ([]Device, error) {
	entries, err := os.ReadDir(s.Sys("block"))
	if err != nil {
		return nil, fmt.Errorf("list block devices: %w", err)
	}
	var devices []Device
	for _, entry := range entries {
		if err := ctx.Err(); err != nil {
			return nil, err
		}
		device, err := s.Device(entry.Name())
		if err != nil || device.Size == 0 {
			continue // unplugged in the meantime, or a drive without a medium
		}
		devices = append(devices, device)
	}
	return devices, nil
}

// VirtualMedia reports whether a device can be what a BMC attached: an optical drive, or a whole USB disk below 4 GiB
// whose medium is removable or write-protected, which its content cannot change. QEMU presents one that way with
// removable=on. Whether BMCs do (iDRAC, iLO, AMI's, OpenBMC) was not measured. Built-in disks are neither, but USB
// sticks and the cards of built-in SD card readers are removable, too. A partition, or a device made of others, never
// is virtual media, because a former owner of the disk could have labelled it.
func (s System) VirtualMedia(name string) (bool, error) {
	device, err := s.Device(name)
	if err != nil {
		return false, err
	}
	if lower := names(s.Sys("class/block", device.Name, "slaves")); len(lower) > 0 {
		return false, nil // a map or an array
	}
	return device.Type == "rom" || device.IsSmallUSBDisk() && (device.Removable || device.ReadOnly), nil
}
