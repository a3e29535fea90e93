package extension

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"

	"ironroot/agent/command"
	"ironroot/agent/journal"
)

// Limits of one configured log file, and of all of them, in bytes.
const (
	maxLogFile  = 16 << 20
	maxLogFiles = 64 << 20
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
	names := []string{options.LogFile}
	if options.LogDir != "" {
		found, err := filepath.Glob(filepath.Join(options.LogDir, "*"))
		if err != nil {
			d.Log.Warn("log_dir not listed", "path", options.LogDir, "err", err)
		}
		names = append(names, found...)
	}
	left := int64(maxLogFiles)
	for _, name := range names {
		if name == "" {
			continue
		}
		data, err := readEnd(name, min(maxLogFile, left))
		left -= int64(len(data))
		if err != nil {
			d.Log.Warn("log file missing in log archive", "path", name, "err", err)
			continue
		}
		members = append(members, journal.Member{Name: "files" + filepath.Clean("/"+name), Data: data})
	}
	return members
}

// readEnd returns the last bytes of a regular file, at most limit. It does not block on a pipe.
func readEnd(name string, limit int64) ([]byte, error) {
	f, err := os.OpenFile(name, os.O_RDONLY|unix.O_NONBLOCK, 0)
	if err != nil {
		return nil, err
	}
	defer f.Close() //nolint:errcheck // only read
	info, err := f.Stat()
	if err != nil {
		return nil, err
	}
	if !info.Mode().IsRegular() {
		return nil, fmt.Errorf("read %s: not a regular file", name)
	}
	return io.ReadAll(io.NewSectionReader(f, max(0, info.Size()-limit), limit))
}
