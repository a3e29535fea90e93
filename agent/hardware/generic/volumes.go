package generic

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"ironroot/agent/hardware"
	"ironroot/agent/imaging"
	"ironroot/agent/node"
	"ironroot/storage/block"
)

// AssembleVolumes assembles the arrays of the node's raid_config for a deployment, unless they run. If there is a root
// volume, it assembles no other one. Arrays that are not complete, or not as create_configuration creates them, are
// logged and listed with the reason.
func (m *Manager) AssembleVolumes(ctx context.Context, n *node.Node) (imaging.Volumes, error) {
	arrays, disks, err := m.volumeDisks(ctx, n)
	if err != nil || arrays.IsEmpty() {
		return imaging.Volumes{}, err
	}
	found, problems, err := m.findVolumes(ctx, n, arrays, disks, m.membersOn)
	if err != nil {
		if namesRoot(n) {
			return imaging.Volumes{}, err
		}
		m.o.Log.Warn("RAID arrays of raid_config cannot be assembled", "err", err)
		return imaging.Volumes{}, nil
	}
	hasRoot := slices.ContainsFunc(found, func(a *createdArray) bool { return a.isRoot() }) ||
		slices.ContainsFunc(problems, func(p badVolume) bool { return p.isRoot() })
	if hasRoot {
		found = slices.DeleteFunc(found, func(a *createdArray) bool { return !a.isRoot() })
	}
	return m.assembleFound(ctx, found, problems), nil
}

// assembleAll waits for the members of the arrays of the node's raid_config, and assembles all arrays that do not run,
// whether or not there is a root volume. It logs arrays that are not complete, or not as create_configuration creates
// them.
func (m *Manager) assembleAll(ctx context.Context, n *node.Node) (imaging.Volumes, error) {
	if n == nil {
		return imaging.Volumes{}, nil
	}
	if err := m.WaitDisks(ctx, n); err != nil {
		return imaging.Volumes{}, err
	}
	arrays, disks, err := m.volumeDisks(ctx, n)
	if err != nil || arrays.IsEmpty() {
		return imaging.Volumes{}, err
	}
	found, problems, err := m.findVolumes(ctx, n, arrays, disks, m.membersOn)
	if err != nil {
		return imaging.Volumes{}, err
	}
	return m.assembleFound(ctx, found, problems), nil
}

// volumeDisks returns the arrays that a node names, and the disks that can have their members. It lists no disks if the
// node names no array.
func (m *Manager) volumeDisks(ctx context.Context, n *node.Node) (hardware.Arrays, []block.Device, error) {
	arrays, err := hardware.ArraysOf(n)
	if err != nil || arrays.IsEmpty() {
		return hardware.Arrays{}, nil, err
	}
	disks, err := m.o.Disks(ctx)
	if err != nil {
		return hardware.Arrays{}, nil, err
	}
	skips, err := hardware.NewSkipList(n)
	if err != nil {
		return hardware.Arrays{}, nil, err
	}
	if disks, err = skips.Without(disks); err != nil {
		return hardware.Arrays{}, nil, err
	}
	return arrays, slices.DeleteFunc(disks, block.Device.IsArray), nil
}

// missingVolume returns why an array of raid_config cannot be assembled from the disks, nil if all can. What disks that
// appear cannot change is no reason.
func (m *Manager) missingVolume(
	ctx context.Context, n *node.Node, arrays hardware.Arrays, disks []block.Device,
) error {
	_, problems, err := m.findVolumes(ctx, n, arrays, disks, m.membersOn)
	if err != nil {
		return nil //nolint:nilerr // the configuration or a disk, which is an error of the step
	}
	for _, p := range problems {
		if !errors.Is(p.err, errProtectedVolume) {
			return fmt.Errorf("RAID array %q: %w", p.name, p.err)
		}
	}
	return nil
}

// namesRoot reports whether raid_config has a root volume, or cannot be read.
func namesRoot(n *node.Node) bool {
	entries, err := n.LogicalDisks()
	return err != nil || slices.ContainsFunc(entries, func(entry map[string]any) bool {
		return entry["controller"] == softwareController && entry["is_root_volume"] == true
	})
}

// assembleFound assembles the arrays that were found and do not run.
func (m *Manager) assembleFound(ctx context.Context, found []*createdArray, problems []badVolume) imaging.Volumes {
	var list []imaging.Volume
	for _, p := range problems {
		m.o.Log.Warn("RAID array not assembled", "volume_name", p.name, "err", p.err)
		list = append(list, imaging.Volume{Name: p.name, Root: p.root, Err: p.err})
	}
	var started []*createdArray
	for _, a := range found {
		v := imaging.Volume{Name: a.name, Root: a.root, Path: a.running}
		for _, d := range a.disks {
			v.Disks = append(v.Disks, d.Path)
		}
		if a.running == "" {
			if v.Path, v.Err = m.assemble(ctx, a); v.Err != nil {
				m.o.Log.Warn("RAID array not assembled", "volume_name", a.name, "err", v.Err)
			} else {
				a.device.Path, started = v.Path, append(started, a)
			}
		}
		list = append(list, v)
	}
	return imaging.Volumes{List: list, Release: func(ctx context.Context, except string) error {
		return m.stopAssembled(ctx, started, except)
	}}
}

// stopAssembled stops arrays, except the one with the device path. If one cannot be stopped, it stops the others.
func (m *Manager) stopAssembled(ctx context.Context, assembled []*createdArray, except string) error {
	var problems []error
	for _, a := range assembled {
		if a.device.Path != except {
			problems = append(problems, m.stop(ctx, a, a.device.Path))
		}
	}
	return errors.Join(problems...)
}
