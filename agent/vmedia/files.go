package vmedia

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"ironroot/agent/fault"
	"ironroot/storage/removable"
)

// Limits of the copied files, which stay in memory.
const (
	maxFiles = 256      // of a directory
	maxFile  = 1 << 20  // bytes of a file
	maxCopy  = 16 << 20 // bytes of all files
)

// directories are copied without their subdirectories.
var directories = []string{"etc/ironic-python-agent", "etc/ironic-python-agent.d"}

func isBootISO(v *removable.Volume) bool { return isBootLabel(v.Label) }

func isBootLabel(label string) bool {
	return isConfigDrive(label) || strings.EqualFold(label, "vmedia_boot_iso")
}

// isConfigDrive reports whether a file system with the label is a config drive. Tools that follow ECMA-119 write labels
// in upper case, which cloud-init accepts, too.
func isConfigDrive(label string) bool { return strings.EqualFold(label, "config-2") }

// bootISO returns the conductor's boot ISO. Its label is config-2 if it contains a config drive's files.
func bootISO(volumes []*removable.Volume) *removable.Volume {
	for _, v := range volumes {
		if isBootISO(v) {
			return v
		}
	}
	return nil
}

// copied is a file that is copied from a medium to the root file system.
type copied struct {
	path string // without a leading slash
	data []byte
}

// copyConfig copies the agent's configuration, including certificates, to the same paths of the root file system. It
// copies nothing if a file cannot be read.
func (m *Media) copyConfig(v *removable.Volume) error {
	files, err := readConfig(v)
	if err != nil {
		return fault.VirtualMediaBoot("copy configuration: %w", err)
	}
	names := []string{}
	for _, f := range files {
		if reason := m.refusal(f); reason != "" {
			m.Log.Warn("file of boot ISO ignored", "device", v.Device.Path, "file", "/"+f.path, "reason", reason)
			continue
		}
		if err := m.place(f); err != nil {
			return fault.VirtualMediaBoot("copy configuration: %w", err)
		}
		m.ironicNamed = m.ironicNamed || bytes.Contains(f.data, []byte("api_url"))
		names = append(names, "/"+f.path)
	}
	m.Log.Info("configuration copied from boot ISO", "device", v.Device.Path, "label", v.Label, "files", names)
	return nil
}

func readConfig(v *removable.Volume) ([]copied, error) {
	var files []copied
	left := int64(maxCopy)
	for _, directory := range directories {
		names, err := v.Files(directory)
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			return nil, err
		}
		if len(names) > maxFiles {
			return nil, fmt.Errorf("%s on %s has %d files, want at most %d",
				directory, v.Device.Path, len(names), maxFiles)
		}
		for _, name := range names {
			f := copied{path: directory + "/" + name}
			if f.data, err = v.ReadFile(f.path, min(maxFile, left)); err != nil {
				return nil, err
			}
			left -= int64(len(f.data))
			files = append(files, f)
		}
	}
	return files, nil
}

// openSuffixes are the suffixes of files that a boot ISO can add to a signed image: configuration, whose options are
// checked, and keys, which only options can name. Other files could be read without that, such as steps that run
// containers.
var openSuffixes = []string{".conf", ".key", ".pem"}

// refusal returns why a file must not be copied, "" if it can be. The image is signed then.
func (m *Media) refusal(f copied) string {
	target := m.target(f)
	if !m.Signed {
		return ""
	}
	if !slices.Contains(openSuffixes, filepath.Ext(target)) {
		return "the image is signed: only " + strings.Join(openSuffixes, ", ") + " can be added"
	}
	if m.unsigned.Files[target] {
		return ""
	}
	if _, err := os.Lstat(target); !errors.Is(err, fs.ErrNotExist) {
		return "the image is signed and contains it already"
	}
	return ""
}

func (m *Media) target(f copied) string { return filepath.Join(m.Root, f.path) }

// place replaces a file. It does not follow an existing symbolic link.
func (m *Media) place(f copied) error {
	target := m.target(f)
	if err := os.MkdirAll(filepath.Dir(target), 0o755); err != nil {
		return err
	}
	if err := os.Remove(target); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	file, err := os.OpenFile(target, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return err
	}
	if m.Signed {
		m.unsigned.Files[target] = true
	}
	_, err = file.Write(f.data)
	return errors.Join(err, file.Close())
}
