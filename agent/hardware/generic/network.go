package generic

import (
	"fmt"
	"maps"
	"slices"
	"strings"

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

// networkDisks are the disks that a RAID step leaves as they are because they are reached over a network, and how, by
// path.
type networkDisks map[string]string

// localDisks returns the disks of a list that a RAID step may change: those of this machine, and with the option
// erase_network_disks also those that are reached over a network. The others are returned, too.
func (m *Manager) localDisks(disks []block.Device) (local []block.Device, others networkDisks, err error) {
	if m.o.Config.Get().EraseNetworkDisks {
		return disks, nil, nil
	}
	others = networkDisks{}
	for _, d := range disks {
		isLocal, err := d.IsLocal()
		switch {
		case err != nil:
			return nil, nil, err
		case isLocal:
			local = append(local, d)
		default:
			m.o.Log.Warn("disk left as it is", "device", d.Path, "reason",
				fmt.Sprintf("reached over a network (%s), and erase_network_disks is not set", d.Network))
			others[d.Path] = d.Network
		}
	}
	return local, others, nil
}

// note returns a text for the end of an error that may be due to these disks, "" if there are none.
func (n networkDisks) note() string {
	if len(n) == 0 {
		return ""
	}
	var list []string
	for _, path := range slices.Sorted(maps.Keys(n)) {
		list = append(list, fmt.Sprintf("%s (%s)", path, n[path]))
	}
	return "; reached over a network, and erase_network_disks is not set: " + strings.Join(list, ", ")
}
