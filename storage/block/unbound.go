package block

import (
	"context"
	"os"
	"strings"

	"ironroot/storage/sysfs"
)

// UnboundController describes a PCI storage controller without a driver. The kernel does not know its disks.
type UnboundController struct {
	Address string // "0000:3b:00.0"
	ID      string // PCI vendor and device, "1000:005d"
	Class   string // "0x010400"
}

// classStorage is the PCI base class of mass storage controllers (PCI Code and ID Assignment Specification, 1.2) as
// sysfs shows it.
const classStorage = "0x01"

// UnboundControllers lists the storage controllers that have no driver, by address. It omits the virtual functions of
// SR-IOV: they belong to virtual machines. With an error that wraps [ErrUnreadable], the list contains the controllers
// that could be read.
func UnboundControllers(ctx context.Context, s sysfs.Root) ([]UnboundController, error) {
	return listControllers(ctx, s, "bus/pci/devices", "storage controllers", "PCI function", unboundController)
}

// unboundController describes a PCI function and reports whether it is a storage controller without a driver.
func unboundController(s sysfs.Root, address string) (c UnboundController, unbound bool, err error) {
	dir := s.Sys("bus/pci/devices", address)
	var values [3]string
	for i, name := range []string{"class", "vendor", "device"} {
		data, err := s.Files.Read(dir + "/" + name)
		if err != nil {
			return UnboundController{}, false, err
		}
		values[i] = strings.TrimSpace(string(data))
	}
	if !strings.HasPrefix(values[0], classStorage) || hasLink(dir, "driver") || hasLink(dir, "physfn") {
		return UnboundController{}, false, nil
	}
	id := strings.TrimPrefix(values[1], "0x") + ":" + strings.TrimPrefix(values[2], "0x")
	return UnboundController{Address: address, ID: id, Class: values[0]}, true, nil
}

// hasLink reports whether a directory contains a link, even if its target does not exist.
func hasLink(dir, name string) bool {
	_, err := os.Lstat(dir + "/" + name)
	return err == nil
}
