package node

import (
	"fmt"
	"slices"

	"ironroot/storage/block"
	"ironroot/storage/hint"
)

// SkipList represents the entries of a node's skip list (properties.skip_block_devices) that name disks. Entries with
// a volume_name name RAID arrays, see package softraid.
type SkipList struct {
	entries []skipEntry
}

type skipEntry struct {
	number  int // position in the list, from 1
	hints   hint.Hints
	matched bool // a device matched
}

// NewSkipList parses the skip list of a node. The list of a nil node is empty. An entry that cannot be parsed is an
// error, because it may protect any disk.
func NewSkipList(n *Node) (*SkipList, error) {
	list := &SkipList{}
	if n == nil {
		return list, nil
	}
	skipped, err := n.SkipBlockDevices()
	if err != nil {
		return nil, err
	}
	for i, raw := range skipped {
		if _, raid := raw["volume_name"]; raid {
			continue
		}
		hints, err := hint.Parse(raw)
		if err != nil {
			return nil, fmt.Errorf("entry %d of skip_block_devices: %w", i+1, err)
		}
		list.entries = append(list.entries, skipEntry{number: i + 1, hints: hints})
	}
	return list, nil
}

// matches reports whether the entry matches a device. It matches a multipath map if it matches one of its paths: the
// operator may have named /dev/sda before it was joined to a map.
func (e *skipEntry) matches(d block.Device) (bool, error) {
	found, err := hint.Find(e.hints, append([]block.Device{d}, d.Components...))
	return len(found) > 0, err
}

// Without returns the devices that the list does not protect. It records which entries match.
func (l *SkipList) Without(devices []block.Device) ([]block.Device, error) {
	var protected []string
	for i := range l.entries {
		entry := &l.entries[i]
		for _, d := range devices {
			matches, err := entry.matches(d)
			if err != nil {
				return nil, fmt.Errorf("entry %d of skip_block_devices: %w", entry.number, err)
			}
			if matches {
				protected = append(protected, d.Path)
				entry.matched = true
			}
		}
	}
	kept := make([]block.Device, 0, len(devices))
	for _, d := range devices {
		if !slices.Contains(protected, d.Path) {
			kept = append(kept, d)
		}
	}
	return kept, nil
}

// identityHints are the hints that compare values read from a disk.
var identityHints = []string{"serial", "wwn", "wwn_with_extension", "wwn_vendor_extension", "model", "vendor"}

// CheckRead returns an error that wraps [block.ErrUnreadable] if the list may protect a device that [SkipList.Without]
// keeps: its identity could not be read, and the list has an entry that compares it.
func (l *SkipList) CheckRead(d block.Device) error {
	if d.Unread == nil {
		return nil
	}
	for _, entry := range l.entries {
		if slices.ContainsFunc(identityHints, func(name string) bool { return entry.hints[name] != nil }) {
			return fmt.Errorf("%w: entry %d of skip_block_devices may name it: %w",
				block.ErrUnreadable, entry.number, d.Unread)
		}
	}
	return nil
}

// Unmatched returns the entries that matched no device so far.
func (l *SkipList) Unmatched() []string {
	var unmatched []string
	for _, entry := range l.entries {
		if !entry.matched {
			unmatched = append(unmatched, entry.hints.String())
		}
	}
	return unmatched
}
