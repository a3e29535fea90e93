package block

import (
	"context"
	"fmt"
	"os"
)

// maxMediaSize bounds in bytes what counts as a virtual USB stick: anything larger could be a disk somebody owns.
const maxMediaSize = 4 << 30

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
			continue // unplugged meanwhile, or a drive without a medium
		}
		devices = append(devices, device)
	}
	return devices, nil
}

// VirtualMedia reports whether a device can be what a BMC attached: an optical drive, or a whole USB disk below 4 GiB
// whose medium is removable or write-protected. BMCs (iDRAC, iLO, AMI's, OpenBMC) present virtual floppies and USB keys
// that way, and QEMU does with removable=on. A built-in disk is neither, and its content cannot change that. A partition,
// or a device made of others, never is virtual media, because a former owner of the disk could have labelled it.
func (s System) VirtualMedia(name string) (bool, error) {
	device, err := s.Device(name)
	if err != nil {
		return false, err
	}
	if lower := names(s.Sys("class/block", device.Name, "slaves")); len(lower) > 0 {
		return false, nil // made of other devices: a map or an array is no medium
	}
	switch device.Type {
	case "rom":
		return true, nil
	case "disk":
		return device.Transport == "usb" && device.Size < maxMediaSize && (device.Removable || device.ReadOnly), nil
	}
	return false, nil
}
