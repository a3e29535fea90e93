package generic

import (
	"fmt"

	"ironroot/storage/block"
)

// withoutNetwork returns the disks of a list that the step may overwrite: those of this machine, and with the option
// erase_network_disks also those that are reached over a network. It records the others as untouched. A disk fails if
// it is not known whether it is reached over a network.
func (r *diskRun) withoutNetwork(disks []block.Device) []block.Device {
	if r.m.o.Config.Get().EraseNetworkDisks {
		return disks
	}
	kept := make([]block.Device, 0, len(disks))
	for _, d := range disks {
		local, err := d.IsLocal()
		switch {
		case err != nil:
			r.fail(d, err)
			continue
		case local:
			kept = append(kept, d)
			continue
		}
		r.record(d, untouched(d, fmt.Sprintf(
			"reached over a network (%s), and erase_network_disks is not set", d.Network)))
	}
	return kept
}
