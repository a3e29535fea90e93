package hardware

import (
	"fmt"
	"slices"

	"ironroot/agent/node"
	"ironroot/storage/block"
	"ironroot/storage/hint"
)

// SkipList represents the entries of a node's skip list (properties.skip_block_devices) that name disks. Entries with
// a volume_name name RAID arrays, see [Arrays].
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
func NewSkipList(n *node.Node) (*SkipList, error) {
	list := &SkipList{}
	if n == nil {
		return list, nil
	}
	skipped, err := n.SkipBlockDevices()
	if err != nil {
		return nil, err
	}
	for i, raw := range skipped {
		if _, raid := raw[volumeName]; raid {
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

// Without returns the devices that the list does not protect. It notes which entries match.
func (l *SkipList) Without(devices []block.Device) ([]block.Device, error) {
	var protected []string
	for i := range l.entries {
		entry := &l.entries[i]
		matches, err := hint.Find(entry.hints, devices)
		if err != nil {
			return nil, fmt.Errorf("entry %d of skip_block_devices: %w", entry.number, err)
		}
		for _, d := range matches {
			protected = append(protected, d.Path)
			entry.matched = true
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

// WithoutSkipped returns the devices that the node's skip list does not protect, see [SkipList].
func WithoutSkipped(n *node.Node, devices []block.Device) ([]block.Device, error) {
	list, err := NewSkipList(n)
	if err != nil {
		return nil, err
	}
	return list.Without(devices)
}
