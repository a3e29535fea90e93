package softraid

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"

	"ironroot/agent/fault"
	"ironroot/storage/block"
)

// Create creates the arrays of the node's target_raid_config. It returns the configuration, which Ironic stores as
// raid_config, or an empty one if it contains no software RAID.
func (r *Arrays) Create(ctx context.Context) (map[string]any, error) {
	var config map[string]any
	if r.o.Node != nil {
		value := r.o.Node.Raw()["target_raid_config"]
		var ok bool
		if config, ok = value.(map[string]any); value != nil && !ok {
			return nil, fault.SoftwareRAID("target_raid_config is not an object")
		}
	}
	if parse(config, false).lacksSoftware {
		r.o.Log.Warn("RAID configuration contains no software RAID")
		return map[string]any{}, nil
	}
	return r.Apply(ctx, config, false)
}

// Apply creates the arrays of a configuration and returns it. With remove, it first deletes the existing arrays.
// Everything is checked before the first write. If an array cannot be created, all arrays of the configuration are
// removed again. A configuration without software RAID is an error: it would delete the arrays and create none.
func (r *Arrays) Apply(ctx context.Context, config map[string]any, remove bool) (map[string]any, error) {
	rules, err := RulesOf(r.o.Node)
	if err != nil {
		return nil, toFault(ctx, err)
	}
	c := parse(config, rules.HasProtected())
	volumes, err := c.toCreate()
	if err != nil {
		return nil, err
	}
	if err := r.replace(ctx, c, volumes, remove); err != nil {
		return nil, toFault(ctx, err)
	}
	return config, nil
}

func (r *Arrays) replace(ctx context.Context, c *configuration, volumes []Volume, remove bool) error {
	s, err := r.read(ctx)
	if err == nil {
		err = r.checkDisks(ctx, volumes, c, s)
	}
	if err := cmp.Or(c.err(r.o.Node), err); err != nil {
		return err
	}
	del := deletion{state: s}
	if remove {
		if err := checkExternal(ctx, s.disks); err != nil {
			return err
		}
		if del, err = r.planDelete(ctx, s); err != nil {
			return err
		}
	}
	plan, err := r.planCreate(ctx, volumes, del)
	if err != nil {
		return err
	}
	if remove {
		if err := r.deleteArrays(ctx, del); err != nil {
			return err
		}
	}
	return r.createArrays(ctx, plan)
}

// Delete removes all arrays that skip_block_devices does not protect, and the partition tables of their disks. Arrays
// that share a disk with a protected one are wiped and kept, with the partition table.
func (r *Arrays) Delete(ctx context.Context) error { return toFault(ctx, r.deleteAll(ctx)) }

func (r *Arrays) deleteAll(ctx context.Context) error {
	s, err := r.read(ctx)
	if err != nil {
		return err
	}
	if err := checkExternal(ctx, s.disks); err != nil {
		return err
	}
	del, err := r.planDelete(ctx, s)
	if err != nil {
		return err
	}
	if err := r.deleteArrays(ctx, del); err != nil {
		return err
	}
	return r.checkDeleted(ctx)
}

// checkDeleted returns an error if an array is left that had to be deleted.
func (r *Arrays) checkDeleted(ctx context.Context) error {
	s, err := r.read(ctx)
	if err != nil {
		return err
	}
	del, err := r.planDelete(ctx, s)
	if err != nil {
		return err
	}
	var left []string
	for _, d := range del.clear {
		left = append(left, d.Path)
	}
	for _, a := range del.stop {
		// A wiped array does not run either.
		left = append(left, a.Path)
	}
	if len(left) > 0 {
		return fault.SoftwareRAID("Unable to clean all softraid correctly. Remaining %s", strings.Join(left, ", "))
	}
	return nil
}

// networkDisks are disks that are reached over a network.
type networkDisks []block.Device

// note returns a suffix for errors that names the network disks that were left out, "" if there are none.
func (n networkDisks) note() string {
	if len(n) == 0 {
		return ""
	}
	var list []string
	for _, d := range n {
		list = append(list, fmt.Sprintf("%s (%s)", d.Path, d.Network))
	}
	slices.Sort(list)
	return "; reached over a network, and erase_network_disks is not set: " + strings.Join(list, ", ")
}
