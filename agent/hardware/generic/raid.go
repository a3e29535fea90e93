package generic

import (
	"cmp"
	"context"
	"encoding/json"
	"strings"

	"ironroot/agent/fault"
	"ironroot/agent/hardware"
	"ironroot/agent/node"
)

// raidInterface is the Ironic interface of the RAID steps.
const raidInterface = "raid"

const (
	raidConfig     = "raid_config"
	deleteExisting = "delete_existing"
)

// raidArguments describes the arguments of apply_configuration.
func raidArguments() map[string]hardware.ArgInfo {
	return map[string]hardware.ArgInfo{
		raidConfig: {Required: true, Description: "" +
			"RAID configuration to apply, in the form of target_raid_config."},
		deleteExisting: {Description: "" +
			"Whether the existing configuration is deleted first. The default is true."},
	}
}

// createConfiguration implements the step create_configuration: it creates the arrays of the node's
// target_raid_config. Its result is the configuration, which Ironic stores as raid_config.
func (m *Manager) createConfiguration(ctx context.Context, call hardware.Call) (any, error) {
	config, err := targetConfig(call.Node)
	if err != nil {
		return nil, err
	}
	if lacksSoftwareRAID(config) {
		m.o.Log.Warn("RAID configuration contains no software RAID")
		return map[string]any{}, nil
	}
	return m.applyRAID(ctx, call.Node, config, false)
}

// applyConfiguration implements the step apply_configuration: it creates the arrays of its argument raid_config, and
// first deletes the existing ones unless delete_existing is false or null, as in ironic-python-agent.
func (m *Manager) applyConfiguration(ctx context.Context, call hardware.Call) (any, error) {
	var config map[string]any
	decoder := json.NewDecoder(strings.NewReader(string(call.Args[raidConfig])))
	decoder.UseNumber()
	if err := decoder.Decode(&config); err != nil {
		return nil, fault.InvalidCommandParams("'%s' must be an object", raidConfig)
	}
	remove := true
	if raw, given := call.Args[deleteExisting]; given {
		var value *bool
		if err := json.Unmarshal(raw, &value); err != nil {
			return nil, fault.InvalidCommandParams("'%s' must be true or false", deleteExisting)
		}
		remove = value != nil && *value
	}
	return m.applyRAID(ctx, call.Node, config, remove)
}

// targetConfig returns the target_raid_config of a node.
func targetConfig(n *node.Node) (map[string]any, error) {
	if n == nil {
		return nil, nil
	}
	value := n.Raw()["target_raid_config"]
	config, ok := value.(map[string]any)
	if value != nil && !ok {
		return nil, fault.SoftwareRAID("target_raid_config is not an object")
	}
	return config, nil
}

// applyRAID creates the arrays of a configuration and returns it. With remove, it first deletes the existing arrays.
// Everything is checked before the first write. If an array cannot be created, those of the configuration are removed
// again. A configuration without software RAID is an error: it would delete the arrays and create none.
func (m *Manager) applyRAID(ctx context.Context, n *node.Node, config map[string]any, remove bool) (any, error) {
	arrays, err := hardware.ArraysOf(n)
	if err != nil {
		return nil, raidFault(ctx, err)
	}
	v, err := validate(config, arrays)
	if err != nil {
		return nil, err
	}
	if err := m.replaceRAID(ctx, n, v, remove); err != nil {
		return nil, raidFault(ctx, err)
	}
	return config, nil
}

func (m *Manager) replaceRAID(ctx context.Context, n *node.Node, v *validation, remove bool) error {
	s, err := m.readRAID(ctx, n)
	if err == nil {
		err = m.checkDisks(ctx, v, s)
	}
	if err := cmp.Or(v.err(n), err); err != nil {
		return err
	}
	del := deletion{raidState: s}
	if remove {
		if err := checkExternal(ctx, s.disks); err != nil {
			return err
		}
		if del, err = m.planDelete(ctx, s); err != nil {
			return err
		}
	}
	plan, err := m.planCreate(ctx, n, v.volumes, del)
	if err != nil {
		return err
	}
	if remove {
		if err := m.deleteArrays(ctx, del); err != nil {
			return err
		}
	}
	return m.createArrays(ctx, plan)
}

// deleteConfiguration implements the step delete_configuration: it removes all arrays that skip_block_devices does not
// protect, and the partition tables of their disks. Arrays that share a disk with a protected one are wiped and kept,
// with the partition table.
func (m *Manager) deleteConfiguration(ctx context.Context, call hardware.Call) (any, error) {
	if err := m.deleteAll(ctx, call.Node); err != nil {
		return nil, raidFault(ctx, err)
	}
	return nil, nil //nolint:nilnil // as that of ironic-python-agent
}

// deleteAll deletes the arrays that need not be kept.
func (m *Manager) deleteAll(ctx context.Context, n *node.Node) error {
	s, err := m.readRAID(ctx, n)
	if err != nil {
		return err
	}
	if err := checkExternal(ctx, s.disks); err != nil {
		return err
	}
	del, err := m.planDelete(ctx, s)
	if err != nil {
		return err
	}
	if err := m.deleteArrays(ctx, del); err != nil {
		return err
	}
	return m.checkDeleted(ctx, n)
}

// checkDeleted returns an error if an array is left that had to be deleted.
func (m *Manager) checkDeleted(ctx context.Context, n *node.Node) error {
	s, err := m.readRAID(ctx, n)
	if err != nil {
		return err
	}
	del, err := m.planDelete(ctx, s)
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
