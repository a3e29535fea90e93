package initramfs

import (
	"github.com/u-root/u-root/pkg/pci"

	"ironroot/internal/pciids"
)

// allNames returns the names of u-root's copy of pci.ids.
func allNames() map[pciids.ID]pciids.Names {
	names := map[pciids.ID]pciids.Names{}
	for _, v := range pci.IDs {
		for _, d := range v.Devices {
			names[pciids.ID{Vendor: v.ID, Device: d.ID}] = pciids.Names{Vendor: v.Name, Device: d.Name}
		}
	}
	return names
}
