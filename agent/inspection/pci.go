package inspection

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"

	"ironroot/storage/sysfs"
)

// pciDevice is a function on the PCI bus. The numbers are hexadecimal without a prefix.
type pciDevice struct {
	VendorID  string  `json:"vendor_id"`
	ProductID string  `json:"product_id"`
	Class     string  `json:"class"`
	Revision  *string `json:"revision"`
	Bus       string  `json:"bus"`
	NUMANode  *string `json:"numa_node_id"`
}

// collectPCIDevices adds the PCI devices. Devices that cannot be read are skipped.
func collectPCIDevices(_ context.Context, i *inspection) error {
	entries, err := os.ReadDir(i.System.Sys("bus/pci/devices"))
	if err != nil && !errors.Is(err, os.ErrNotExist) { // there are machines without the bus
		return fmt.Errorf("list PCI devices: %w", err)
	}
	devices := []pciDevice{}
	for _, device := range sysfs.Each(entries, i.pciDevice) {
		if device != nil {
			devices = append(devices, *device)
		}
	}
	i.set("pci_devices", devices)
	return nil
}

// pciDevice returns a device, nil if it cannot be read.
func (i *inspection) pciDevice(entry os.DirEntry) *pciDevice {
	bus := entry.Name()
	device := &pciDevice{Bus: bus}
	for _, f := range []struct {
		file string
		into *string
	}{{"vendor", &device.VendorID}, {"device", &device.ProductID}, {"class", &device.Class}} {
		data, err := i.Inventory.Read(i.System.Sys("bus/pci/devices", bus, f.file))
		if err != nil {
			i.Log.Warn("PCI device skipped", "device", bus, "err", err)
			return nil
		}
		*f.into = strings.TrimPrefix(strings.TrimSpace(string(data)), "0x")
	}
	for _, f := range []struct {
		file string
		into **string
	}{{"revision", &device.Revision}, {"numa_node", &device.NUMANode}} {
		if data, err := i.Inventory.Read(i.System.Sys("bus/pci/devices", bus, f.file)); err == nil {
			text := strings.TrimPrefix(strings.TrimSpace(string(data)), "0x")
			*f.into = &text
		}
	}
	return device
}
