package generic

import (
	"context"
	"encoding/json"
	"strings"

	"ironroot/agent/cleaning"
	"ironroot/agent/fault"
	"ironroot/agent/hardware"
	"ironroot/agent/imaging"
	"ironroot/agent/node"
	"ironroot/agent/softraid"
	"ironroot/internal/timelimit"
	"ironroot/storage/block"
	"ironroot/storage/bootloader"
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

// raidArrays returns the arrays of a node on this machine.
func (m *Manager) raidArrays(n *node.Node) *softraid.Arrays {
	c := m.o.Config.Get()
	uefi := imaging.BootsUEFI(n, bootloader.FirmwareIsUEFI(m.o.System))
	return softraid.New(softraid.Options{
		Node: n, System: m.o.System, Disks: m.cleaning(), Kernel: m.kernel, Log: m.o.Log,
		Limits: func(block.Device) timelimit.Limits { return timelimit.Disk },
		Guard:  cleaning.Guards(n, c), Wait: cleaning.WaitOf(c), UEFI: uefi,
		Scheme: imaging.TableScheme(n, uefi),
	})
}

// nodeArrays implements [inject.Assembler].
type nodeArrays struct{ m *Manager }

// Assemble waits for the members of the arrays of the node's raid_config, and assembles all of them.
func (d nodeArrays) Assemble(ctx context.Context, n *node.Node) (softraid.Assembled, error) {
	if n == nil {
		return softraid.Assembled{}, nil
	}
	if err := d.m.WaitDisks(ctx, n); err != nil {
		return softraid.Assembled{}, err
	}
	return d.m.raidArrays(n).AssembleAll(ctx)
}

// createConfiguration implements the step create_configuration: it creates the arrays of the node's
// target_raid_config. Its result is the configuration, which Ironic stores as raid_config.
func (m *Manager) createConfiguration(ctx context.Context, call hardware.Call) (any, error) {
	return result(m.raidArrays(call.Node).Create(ctx))
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
	return result(m.raidArrays(call.Node).Apply(ctx, config, remove))
}

// result returns the configuration that was applied as the result of a step, nil if err is not nil.
func result(config map[string]any, err error) (any, error) {
	if err != nil {
		return nil, err
	}
	return config, nil
}

// deleteConfiguration implements the step delete_configuration, see [softraid.Arrays.Delete].
func (m *Manager) deleteConfiguration(ctx context.Context, call hardware.Call) (any, error) {
	return nil, m.raidArrays(call.Node).Delete(ctx) // no result, as in ironic-python-agent
}

// AssembleVolumes assembles the arrays of the node's raid_config for a deployment, see
// [softraid.Arrays.AssembleRoot].
func (m *Manager) AssembleVolumes(ctx context.Context, n *node.Node) (softraid.Assembled, error) {
	return m.raidArrays(n).AssembleRoot(ctx)
}
