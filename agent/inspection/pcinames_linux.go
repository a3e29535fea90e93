package inspection

import "github.com/u-root/u-root/pkg/pci"

// pciNames returns the names of a vendor and its product in the database pci.ids, "" for those that it lacks.
func pciNames(vendor, product uint16) (vendorName, productName string) {
	for _, entry := range pci.IDs {
		if entry.ID != vendor {
			continue
		}
		for _, device := range entry.Devices {
			if device.ID == product {
				return entry.Name, device.Name
			}
		}
		return entry.Name, ""
	}
	return "", ""
}
