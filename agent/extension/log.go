package extension

import (
	"context"
	"encoding/base64"
	"encoding/json"

	"ironroot/agent/command"
	"ironroot/agent/journal"
)

// logs returns the log archive.
func logs(d Deps) command.Extension {
	return command.Extension{Name: "log", Commands: []command.Command{{
		Name: "collect_system_logs",
		Run: func(ctx context.Context, _ command.Params) (any, error) {
			archive, err := d.Journal.Archive(ctx, d.System, extraMembers(ctx, d)...)
			if err != nil {
				return nil, err
			}
			return map[string]string{"system_logs": base64.StdEncoding.EncodeToString(archive)}, nil
		},
	}}}
}

// extraMembers returns the inventory, under the name of the program that would print it, and the configured log files.
// Files that cannot be read are skipped, as ironic-python-agent does.
func extraMembers(ctx context.Context, d Deps) []journal.Member {
	var members []journal.Member
	if inventory, err := d.Inventory.Collect(ctx); err != nil {
		d.Log.Warn("inventory missing in log archive", "err", err)
	} else if data, err := json.MarshalIndent(inventory, "", "  "); err == nil {
		members = append(members, journal.Member{Name: "lshw", Data: data})
	}
	options := d.Config.Get()
	return append(members, journal.Files(ctx, d.Log, options.LogFile, options.LogDir)...)
}
