package inspection

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"

	"ironroot/agent/hardware"
	"ironroot/agent/inventory"
	"ironroot/agent/journal"
	"ironroot/internal/goroutine"
	"ironroot/storage/block"
	"ironroot/storage/hint"
)

// configuration describes how the data was collected.
type configuration struct {
	Collectors []string               `json:"collectors"`
	Managers   []hardware.NameVersion `json:"managers"`
}

// collectDefault adds the inventory, the root disk, and the configuration of the inspection.
func collectDefault(ctx context.Context, i *inspection) error {
	var disks, addresses error
	goroutine.Do(
		func() { disks = i.Managers.WaitDisks(ctx, nil) },
		func() { addresses = i.waitDHCP(ctx) },
	)
	if disks != nil {
		return fmt.Errorf("wait for disks: %w", disks)
	}
	if addresses != nil {
		return addresses
	}
	i.set("configuration", configuration{Collectors: i.names, Managers: i.Managers.List()})
	inv, err := i.Inventory.Collect(ctx)
	if err != nil {
		return err
	}
	i.found = inv
	i.set("inventory", inv)
	i.set("boot_interface", inv.Boot.PXEInterface)
	disk, err := i.Imager.RootDisk(ctx, false)
	switch {
	case errors.Is(err, hint.ErrNoDisk):
		i.Log.Info("inspection found no root disk", "err", err)
	case errors.Is(err, block.ErrUnreadable): // the root disk can be among the unreadable ones
		i.Log.Warn("inspection without root disk", "err", err)
	case err != nil:
		return err
	default:
		i.set("root_disk", inventory.DiskOf(disk))
	}
	return nil
}

// logsKey is the key of the log archive.
const logsKey = "logs"

// collectLogs adds the log archive. Its failure must not fail the inspection.
func collectLogs(ctx context.Context, i *inspection) error {
	archive, err := i.Journal.Archive(ctx, i.System, i.logMembers(ctx)...)
	if err != nil {
		i.Log.Warn("inspection without logs", "err", err)
		return nil
	}
	i.set(logsKey, base64.StdEncoding.EncodeToString(archive))
	return nil
}

// logMembers returns the configured log files, and the inventory under the name of the program that would print it, as
// members of the log archive.
func (i *inspection) logMembers(ctx context.Context) []journal.Member {
	var members []journal.Member
	if i.found != nil {
		if data, err := json.MarshalIndent(i.found, "", "  "); err == nil { // it was encoded before
			members = append(members, journal.Member{Name: "lshw", Data: data})
		}
	}
	options := i.Config.Get()
	return append(members, journal.Files(ctx, i.Log, options.LogFile, options.LogDir)...)
}
