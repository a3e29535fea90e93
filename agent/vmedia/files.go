package vmedia

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"ironroot/agent/fault"
	"ironroot/storage/removable"
)

// Bounds of what is copied: all of it stays in memory.
const (
	maxFiles = 256
	maxFile  = 1 << 20
)

// folders are copied, without what is below their own folders.
var folders = []string{"etc/ironic-python-agent", "etc/ironic-python-agent.d"}

func isBootISO(v *removable.Volume) bool {
	return strings.EqualFold(v.Label, "config-2") || strings.EqualFold(v.Label, "vmedia_boot_iso")
}

// bootISO picks the conductor's boot ISO. It has the label config-2 when it carries a config drive's files.
func bootISO(volumes []*removable.Volume) *removable.Volume {
	for _, v := range volumes {
		if isBootISO(v) {
			return v
		}
	}
	return nil
}

// copyConfig copies the agent's configuration, certificates among it, to where options refer to.
func (o Options) copyConfig(v *removable.Volume) error {
	copied := []string{}
	for _, folder := range folders {
		names, err := v.Files(folder)
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err == nil && len(names) > maxFiles {
			err = fmt.Errorf("%s on %s has %d files, want at most %d", folder, v.Device.Path, len(names), maxFiles)
		}
		if err != nil {
			return fault.VirtualMediaBoot("copy configuration: %w", err)
		}
		for _, name := range names {
			path := folder + "/" + name
			if err := o.copyFile(v, path); err != nil {
				return fault.VirtualMediaBoot("copy configuration: %w", err)
			}
			copied = append(copied, "/"+path)
		}
	}
	o.Log.Info("configuration of the boot ISO", "device", v.Device.Path, "label", v.Label, "files", copied)
	return nil
}

// copyFile replaces a file: what stands in its place, a link for instance, is not written through.
func (o Options) copyFile(v *removable.Volume, path string) error {
	data, err := v.ReadFile(path, maxFile)
	if err != nil {
		return err
	}
	target := filepath.Join(o.Root, path)
	if err := os.MkdirAll(filepath.Dir(target), 0o755); err != nil {
		return err
	}
	if err := os.Remove(target); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	f, err := os.OpenFile(target, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return err
	}
	_, err = f.Write(data)
	return errors.Join(err, f.Close())
}
