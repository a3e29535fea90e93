package raid

import (
	"context"
	"fmt"
	"slices"

	"ironroot/storage/block"
	"ironroot/storage/sysfs"
)

// ReadMembers reads the superblocks of devices. Each must have a single superblock, valid and of the array with the
// UUID, and together they must be complete, see [Array.CheckComplete]. The result is in the order of the roles. Errors
// of members wrap [ErrIncomplete].
func ReadMembers(ctx context.Context, sys sysfs.Root, uuid string, paths []string) (Array, error) {
	var members Array
	for _, path := range paths {
		d, err := block.Find(sys, path)
		if err != nil {
			return nil, err
		}
		found, err := Read(ctx, path)
		if err != nil {
			return nil, err
		}
		if len(found) != 1 {
			return nil, fmt.Errorf("%w: %s has %d superblocks, want 1", ErrIncomplete, path, len(found))
		}
		if found[0].Problem == nil && found[0].UUID != uuid {
			return nil, fmt.Errorf("%w: %s: got UUID %s, want %s", ErrIncomplete, path, found[0].UUID, uuid)
		}
		members = append(members, Member{Device: d, Superblock: found[0]})
	}
	if err := members.CheckComplete(); err != nil {
		return nil, err
	}
	slices.SortFunc(members, func(a, b Member) int { return a.Role - b.Role })
	return members, nil
}
