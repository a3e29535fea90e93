package cleaning

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"

	"ironroot/agent/softraid"
	"ironroot/storage/block"
	"ironroot/storage/partition"
	"ironroot/storage/raid"
	"ironroot/storage/sysfs"
)

// keptArrays has the arrays that Ironic created and that a step erases and keeps, see prepareArrays.
type keptArrays struct {
	arrays []*softraid.Volume

	mu      sync.Mutex             // of the maps: a decision that the kernel has held up can read them during the erase
	members map[string]raid.Member // of the arrays, by device path
	refused map[string]error       // why other arrays that Ironic created are not kept, by name
	none    error                  // why no array that Ironic created can be kept, or nil
}

// keep adds an array.
func (k *keptArrays) keep(a *softraid.Volume) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.members == nil {
		k.members = map[string]raid.Member{}
	}
	k.arrays = append(k.arrays, a)
	for _, m := range a.Members {
		k.members[m.Device.Path] = m
	}
}

// refuse notes why the step cannot keep an array.
func (k *keptArrays) refuse(a *softraid.Volume, err error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.refused == nil {
		k.refused = map[string]error{}
	}
	k.refused[a.Name] = err
}

// drop removes an array.
func (k *keptArrays) drop(a *softraid.Volume, err error) {
	k.refuse(a, err)
	k.mu.Lock()
	defer k.mu.Unlock()
	for _, m := range a.Members {
		delete(k.members, m.Device.Path)
	}
	k.arrays = slices.DeleteFunc(k.arrays, func(other *softraid.Volume) bool { return other == a })
}

// refusal returns why the array of a member is not kept, nil if there is no reason.
func (k *keptArrays) refusal(member raid.Member) error {
	k.mu.Lock()
	defer k.mu.Unlock()
	if err := k.refused[member.ShortName()]; err != nil {
		return err
	}
	return k.none
}

// has reports whether a device is a member of a kept array.
func (k *keptArrays) has(d block.Device) bool {
	_, kept := k.member(d.Path)
	return kept
}

// member returns the member of a kept array that a device is.
func (k *keptArrays) member(path string) (member raid.Member, kept bool) {
	k.mu.Lock()
	defer k.mu.Unlock()
	member, kept = k.members[path]
	return member, kept
}

// of returns the array of a member, nil if it is not kept.
func (k *keptArrays) of(member raid.Member) *softraid.Volume {
	for _, a := range k.arrays {
		if a.Members[0].UUID == member.UUID {
			return a
		}
	}
	return nil
}

// onDisk reports whether a partition of a disk is a member of a kept array.
func (k *keptArrays) onDisk(ctx context.Context, sys sysfs.Root, d block.Device) (bool, error) {
	k.mu.Lock()
	empty := len(k.members) == 0
	k.mu.Unlock()
	if empty {
		return false, nil
	}
	parts, err := block.Partitions(ctx, sys, d.Path)
	return slices.ContainsFunc(parts, k.has), err
}

// wipeGaps zeroes the boot code of a disk with members of arrays that Ironic created, and both ends of each gap between
// its partitions. It returns an error if the disk has superblocks of other arrays afterwards.
func (k *keptArrays) wipeGaps(ctx context.Context, sys sysfs.Root, d block.Device) error {
	if err := partition.WipeGaps(ctx, d.Path); err != nil {
		return err
	}
	return k.checkSuperblocks(ctx, sys, d)
}

// checkSuperblocks returns an error unless each member of an array that Ironic created has its superblock, and the disk
// and its partitions have no others.
func (k *keptArrays) checkSuperblocks(ctx context.Context, sys sysfs.Root, d block.Device) error {
	members, err := raid.Members(ctx, sys, d)
	if err != nil {
		return err
	}
	var problems []error
	found := map[string]int{}
	for _, m := range members {
		found[m.Device.Path]++
		if own, kept := k.member(m.Device.Path); !kept || own.UUID != m.UUID {
			problems = append(problems, fmt.Errorf("a superblock of %s is left on %s", m, m.Device.Path))
		}
	}
	parts, err := block.Partitions(ctx, sys, d.Path)
	for _, part := range parts {
		if own, kept := k.member(part.Path); kept && found[part.Path] != 1 {
			problems = append(problems, fmt.Errorf("%s has %d superblocks, want that of %s",
				part.Path, found[part.Path], own))
		}
	}
	return errors.Join(append(problems, err)...)
}
