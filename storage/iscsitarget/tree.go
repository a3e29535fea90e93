package iscsitarget

import (
	"crypto/rand"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"strings"
)

// files are the operations on configfs. The kernel creates and removes an object when its directory is created and
// removed; it creates the files in it.
type files interface {
	Mkdir(path string) error
	Rmdir(path string) error
	Symlink(target, path string) error
	Unlink(path string) error
	Write(path, value string) error
	Read(path string) (string, error)
}

// kernelFiles are the files of the kernel.
type kernelFiles struct{}

func (kernelFiles) Mkdir(path string) error           { return os.Mkdir(path, 0o755) }
func (kernelFiles) Rmdir(path string) error           { return os.Remove(path) }
func (kernelFiles) Symlink(target, path string) error { return os.Symlink(target, path) }
func (kernelFiles) Unlink(path string) error          { return os.Remove(path) }

// Write writes a value by one call, as configfs requires. It creates no file.
func (kernelFiles) Write(path, value string) error {
	f, err := os.OpenFile(path, os.O_WRONLY, 0)
	if err != nil {
		return err
	}
	_, err = f.WriteString(value)
	return errors.Join(err, f.Close())
}

func (kernelFiles) Read(path string) (string, error) {
	data, err := os.ReadFile(path)
	return string(data), err
}

const (
	adapter = "core/iblock_0" // "HBA" of the back end
	unit    = "lun/lun_1"
	link    = "device" // in the unit, to the back end
)

// tree is the target in the kernel's configuration, as directories below root.
type tree struct {
	files
	Export
	root string
}

func (t tree) path(elem ...string) string { return path.Join(append([]string{t.root}, elem...)...) }

// backend is the directory of the exported device.
func (t tree) backend(elem ...string) string {
	return t.path(append([]string{adapter, filepath.Base(t.Device)}, elem...)...)
}

// group is the directory of the portal group.
func (t tree) group(elem ...string) string {
	return t.path(append([]string{"iscsi", t.Name, "tpgt_1"}, elem...)...)
}

// checkAbsent returns an error if the kernel has such a target, which this process did not create.
func (t tree) checkAbsent() error {
	for _, name := range []string{t.path("iscsi", t.Name), t.path(adapter)} {
		if _, err := os.Stat(name); err == nil {
			return fmt.Errorf("%w: %s", ErrExists, name)
		}
	}
	return nil
}

// create creates the target. Directories that it created before an error are removed by remove.
func (t tree) create() error {
	serial := rand.Text()
	for _, do := range []func() error{
		func() error { return t.Mkdir(t.path(adapter)) },
		func() error { return t.Mkdir(t.backend()) },
		func() error { return t.Write(t.backend("control"), "udev_path="+t.Device) },
		func() error { return t.Write(t.backend("wwn/vpd_unit_serial"), serial) },
		func() error { return t.Write(t.backend("enable"), "1") }, // opens the device
		func() error { return t.mkdirIfAbsent(t.path("iscsi")) },
		func() error { return t.Write(t.path("iscsi/discovery_auth/enforce_discovery_auth"), "0") },
		func() error { return t.Mkdir(t.path("iscsi", t.Name)) },
		func() error { return t.Mkdir(t.group()) },
		func() error { return t.Write(t.group("attrib/authentication"), "0") },
		func() error { return t.Write(t.group("attrib/demo_mode_write_protect"), "0") },
		func() error { return t.Write(t.group("attrib/generate_node_acls"), "1") },
		func() error { return t.Mkdir(t.group(unit)) },
		func() error { return t.Symlink(t.backend(), t.group(unit, link)) },
		func() error { return t.Mkdir(t.group("np", t.Portal.String())) },
		func() error { return t.Write(t.group("enable"), "1") },
	} {
		if err := do(); err != nil {
			return err
		}
	}
	return t.verify()
}

func (t tree) mkdirIfAbsent(name string) error {
	if err := t.Mkdir(name); err != nil && !errors.Is(err, fs.ErrExist) {
		return err
	}
	return nil
}

// verify reads back whether the target is in use, and with which device.
func (t tree) verify() error {
	for _, name := range []string{t.backend("enable"), t.group("enable")} {
		got, err := t.Read(name)
		if err != nil {
			return err
		}
		if got := strings.TrimSpace(got); got != "1" {
			return fmt.Errorf("%s: got %q, want 1", name, got)
		}
	}
	text, err := t.Read(t.backend("info"))
	if err != nil {
		return err
	}
	got, want := strings.Join(strings.Fields(text), " "), "UDEV PATH: "+t.Device+" readonly: 0"
	if !strings.Contains(got, want) {
		return fmt.Errorf("%s: got %q, want %q", t.backend("info"), got, want)
	}
	return nil
}

// remove removes what exists of the target. First it ends all sessions.
func (t tree) remove() error {
	for _, do := range []func() error{
		t.disable,
		func() error { return t.Rmdir(t.group("np", t.Portal.String())) },
		func() error { return t.Unlink(t.group(unit, link)) },
		func() error { return t.Rmdir(t.group(unit)) },
		func() error { return t.Rmdir(t.group()) },
		func() error { return t.Rmdir(t.path("iscsi", t.Name)) },
		func() error { return t.Rmdir(t.backend()) },
		func() error { return t.Rmdir(t.path(adapter)) },
	} {
		if err := do(); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
	}
	return nil
}

// disable ends all sessions. Older kernels reject to disable a group that is not enabled.
func (t tree) disable() error {
	enabled, err := t.Read(t.group("enable"))
	if err != nil || strings.TrimSpace(enabled) == "0" {
		return err
	}
	return t.Write(t.group("enable"), "0")
}

// sessions returns the names of the initiators that are logged in.
func (t tree) sessions() ([]string, error) {
	text, err := t.Read(t.group("dynamic_sessions"))
	if errors.Is(err, fs.ErrNotExist) { // the group is removed
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	return strings.Fields(strings.ReplaceAll(text, "\x00", " ")), nil
}
