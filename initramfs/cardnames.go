package initramfs

import (
	"bytes"
	"fmt"
	"strings"

	"github.com/u-root/mkuimage/cpio"

	"ironroot/internal/pciids"
	"ironroot/uinit/kmod"
)

// cardNames returns the file with the names of the network cards that modules drive.
func cardNames(modules []*kmod.Module) (cpio.Record, error) {
	devices := allNames()
	names := map[pciids.ID]pciids.Names{}
	for _, m := range modules {
		if !strings.HasPrefix(m.Dir, "drivers/net/") {
			continue
		}
		for _, alias := range m.Aliases {
			// An alias that matches each device of a vendor has no number of a device.
			var id pciids.ID
			if _, err := fmt.Sscanf(alias, "pci:v%08Xd%08Xs", &id.Vendor, &id.Device); err != nil {
				continue
			}
			if name, ok := devices[id]; ok {
				names[id] = name
			}
		}
	}
	var text bytes.Buffer
	if err := pciids.Write(&text, names); err != nil {
		return cpio.Record{}, err
	}
	return cpio.StaticFile(pciids.File, text.String(), 0o644), nil
}
