package cleaning

import (
	"slices"

	"ironroot/agent/softraid"
	"ironroot/agent/status"
	"ironroot/storage/block"
)

// announce lists the disks of the step, and the arrays whose content it erases, so that its progress is known as a
// whole. They count by the bytes to write; in steps that only erase the metadata of some disks, each counts as one.
func (r *diskRun) announce() {
	var items []status.Item
	inArrays := map[string]int64{} // bytes by path of the disk
	for _, a := range r.kept.arrays {
		for _, m := range a.Members {
			inArrays[m.Disk.Path] += m.Device.Size
		}
		if slices.ContainsFunc(a.Members, r.flags.erasesMember) {
			items = append(items, r.arrayItem(a))
		}
	}
	for _, d := range r.disks {
		size := int64(1)
		if r.flags.countsBytes() {
			size = max(d.Size-inArrays[d.Path], 1)
		}
		items = append(items, status.Item{Device: d.Path, Size: size})
	}
	r.progress = r.m.o.Board.Plan(items)
}

// splitItem lists the partitions of a disk that are written one by one, and the space outside of them. The data of a
// member of an array is written through the array.
func (r *diskRun) splitItem(d block.Device, targets []block.Device) {
	var parts []status.Item
	rest := d.Size
	for _, target := range targets {
		part := status.Item{Device: target.Path}
		if !r.kept.has(target) && r.flags.countsBytes() {
			part.Size = target.Size
		}
		parts = append(parts, part)
		rest -= target.Size
	}
	outside := status.Item{Device: d.Path}
	if r.flags.countsBytes() {
		outside.Size = max(rest, 0)
	}
	r.progress.Split(d.Path, append(parts, outside))
}

// arrayItem returns the item of the progress for the content of an array. It counts by the bytes of its members.
func (r *diskRun) arrayItem(a *softraid.Volume) status.Item {
	item := status.Item{Device: a.String()}
	if r.flags.countsBytes() {
		for _, m := range a.Members {
			item.Size += max(m.Device.Size-m.DataOffset, 0)
		}
	}
	item.Size = max(item.Size, 1)
	return item
}

// finishItem records in the progress what was done to a disk. The caller has recorded its report or error before.
func (r *diskRun) finishItem(item string, d block.Device) {
	r.progress.Finish(item, r.results.progress(d))
}
