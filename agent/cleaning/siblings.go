package cleaning

import (
	"context"
	"slices"

	"ironroot/storage/block"
)

// byController returns the disks of the step, in their order. The namespaces of an NVMe controller that has several are
// returned together if the step erases all of them: none is written while another one is being sanitized. If the node
// names arrays, parts of namespaces can be protected, so its namespaces are returned one by one.
func (r *diskRun) byController(ctx context.Context) [][]block.Device {
	group := map[string]int{} // the controller by device path, as an index + 1
	if r.arrays.IsEmpty() && r.flags.nvme {
		// With an error, the controllers that could be read are listed; the end of the step reports it.
		controllers, _ := block.NVMeControllers(ctx, r.m.o.System)
		for i, c := range controllers {
			if slices.ContainsFunc(c.Namespaces, func(n block.NVMeNamespace) bool {
				return !slices.ContainsFunc(r.disks, func(d block.Device) bool { return d.Path == n.Path })
			}) {
				continue
			}
			for _, n := range c.Namespaces {
				group[n.Path] = i + 1
			}
		}
	}
	var units [][]block.Device
	place := map[int]int{} // of a controller's disks in units
	for _, d := range r.disks {
		controller := group[d.Path]
		at, known := place[controller]
		if controller != 0 && known {
			units[at] = append(units[at], d)
			continue
		}
		place[controller] = len(units)
		units = append(units, []block.Device{d})
	}
	return units
}

// siblings returns the other namespaces of the disks, or none if one of the disks is left untouched or cannot be
// checked. A sanitize erases all of them.
func (r *diskRun) siblings(ctx context.Context, d block.Device, disks []block.Device) []block.Device {
	if len(disks) < 2 {
		return nil
	}
	var others []block.Device
	for _, other := range disks {
		reason, err := limitRunDisk(ctx, r, other, func(ctx context.Context, d block.Device) (string, error) {
			return r.skipReason(ctx, d, r.flags.skipReadOnly)
		})
		if err != nil || reason != "" {
			return nil
		}
		if other.Path != d.Path {
			others = append(others, other)
		}
	}
	return others
}
