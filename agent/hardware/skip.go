package hardware

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"ironroot/agent/node"
	"ironroot/storage/block"
	"ironroot/storage/hint"
)

// volumeName is the key of an entry of the skip list that protects a RAID array by its name.
const volumeName = "volume_name"

// WithoutSkipped returns the devices that the node's skip list (properties.skip_block_devices) does not protect.
// A nil node protects nothing. Entries with a volume_name speak of RAID arrays: see
// [WithoutProtectedArrays].
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

// WithoutProtectedArrays returns the devices that hold nothing of a RAID array which the node's skip list protects by its
// name: disks with a member on them or on one of their partitions, and the array itself. Only where there is such an entry
// are the devices read, and one that cannot be read is an error then. Erasing has no need of it: that leaves every member
// alone, and not what lies beside one.
func WithoutProtectedArrays(ctx context.Context, sys block.System, n *node.Node, devices []block.Device) ([]block.Device, error) {
	if n == nil {
		return devices, nil
	}
	skipped, err := n.SkipBlockDevices()
	if err != nil {
		return nil, err
	}
	var arrays []string
	for i, raw := range skipped {
		value, protects := raw[volumeName]
		if !protects {
			continue
		}
		name, ok := value.(string)
		if !ok || name == "" {
			return nil, fmt.Errorf("entry %d of skip_block_devices: %s is no name", i+1, volumeName)
		}
		arrays = append(arrays, name)
	}
	if len(arrays) == 0 {
		return devices, nil
	}
	kept := make([]block.Device, 0, len(devices))
	for _, d := range devices {
		if protected, err := holdsArray(ctx, sys, d, arrays); err != nil {
			return nil, fmt.Errorf("look for the RAID arrays of skip_block_devices: %w", err)
		} else if !protected {
			kept = append(kept, d)
		}
	}
	return kept, nil
}

// holdsArray tells whether a device, its partitions or what it is made of are members of one of these arrays.
func holdsArray(ctx context.Context, sys block.System, d block.Device, arrays []string) (bool, error) {
	parts, err := sys.Partitions(ctx, d.Path)
	if err != nil {
		return false, err
	}
	paths := []string{d.Path}
	for _, p := range parts {
		paths = append(paths, p.Path)
	}
	if strings.Contains(d.Type, "raid") {
		components, err := sys.Components(d.Path)
		if err != nil {
			return false, err
		}
		paths = append(paths, components...)
	}
	for _, path := range paths {
		found, err := block.Probe(ctx, path)
		if err != nil {
			return false, err
		}
		name := found.Label[strings.LastIndex(found.Label, ":")+1:] // without the host that made it
		if found.Type == "linux_raid_member" && slices.Contains(arrays, name) {
			return true, nil
		}
	}
	return false, nil
}
