package imaging

import (
	"context"
	"maps"
	"slices"

	"ironroot/agent/fault"
	"ironroot/agent/node"
	"ironroot/storage/block"
	"ironroot/storage/hint"
	"ironroot/storage/raid"
)

// checkFirmwareRAID returns a fault if the disk is an active member of a firmware RAID, unless a root device hint names
// this disk and no other one. Other metadata of firmware RAID are only logged: those that are damaged, belong to
// another disk, or list the disk as a spare or as failed. An array that runs is no member.
func (i *Imager) checkFirmwareRAID(ctx context.Context, n *node.Node, disk block.Device, disks []block.Device) error {
	if disk.IsArray() {
		return nil
	}
	m, err := raid.ReadMembership(ctx, disk.Path, slices.Concat(disk.Serials, []string{disk.Serial}))
	if ctx.Err() != nil {
		return ctx.Err()
	}
	log := i.o.Log.With("device", disk.Path)
	if err != nil {
		log.Warn("firmware RAID metadata not read", "err", err)
		return nil // refused only if it is known to be a member
	}
	if m.Format == "" {
		return nil
	}
	log = log.With("format", m.Format.String())
	if !m.IsActive() {
		log.Warn("firmware RAID metadata ignored", "reason", m.Reason)
		return nil
	}
	var hints hint.Hints
	if n != nil {
		given, err := n.RootDeviceHints()
		if err == nil {
			hints, err = hint.Parse(chosenHints(given))
		}
		if err != nil {
			return fault.DeviceNotFound("root device hints: %w", err)
		}
	}
	if hints.NamesOnly(disk, disks) {
		log.Warn("firmware RAID member selected as root disk", "reason", "root device hint names this disk")
		return nil
	}
	return fault.DeviceNotFound("root disk %s: active member of a firmware RAID, %s: erase its metadata with "+
		"erase_devices_metadata, or name only this disk by the root device hint serial, wwn, name or by_path",
		disk.Path, m.Format)
}

// defaultNames are the values of the hint name that Metal3's baremetal-operator sets if the operator gives no hints.
// Its default hardware profile has this device (baremetal-operator, apis/metal3.io/v1alpha1/profile/profile.go).
var defaultNames = []any{"/dev/sda", "s== /dev/sda"}

// chosenHints returns the hints without a name that nobody has chosen.
func chosenHints(hints map[string]any) map[string]any {
	if !slices.Contains(defaultNames, hints["name"]) {
		return hints
	}
	hints = maps.Clone(hints)
	delete(hints, "name")
	return hints
}
