package hardware

import (
	"fmt"
	"slices"

	"ironroot/agent/node"
	"ironroot/storage/block"
	"ironroot/storage/hint"
)

// WithoutSkipped returns the devices that the node's skip list (properties.skip_block_devices) does not protect.
// A nil node protects nothing. Entries with a volume_name name RAID arrays, see [Arrays].
func WithoutSkipped(n *node.Node, devices []block.Device) ([]block.Device, error) {
	if n == nil {
		return devices, nil
	}
	skipped, err := n.SkipBlockDevices()
	if err != nil {
		return nil, err
	}
	var protected []string
	for i, raw := range skipped {
		if _, raid := raw[volumeName]; raid {
			continue
		}
		hints, err := hint.Parse(raw)
		if err != nil {
			return nil, fmt.Errorf("entry %d of skip_block_devices: %w", i+1, err)
		}
		matches, err := hint.Find(hints, devices)
		if err != nil {
			return nil, fmt.Errorf("entry %d of skip_block_devices: %w", i+1, err)
		}
		for _, d := range matches {
			protected = append(protected, d.Path)
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
