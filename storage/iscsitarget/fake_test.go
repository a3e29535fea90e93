package iscsitarget

import (
	"errors"
	"io/fs"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"golang.org/x/sys/unix"

	"ironroot/storage/sysfs"
)

// configfs is a directory that behaves as the kernel's configuration of targets: new directories have the files of
// their kind, and directories are removed only in the order that the kernel allows.
type configfs struct {
	kernelFiles
	t      *testing.T
	root   string
	fail   map[string]error // by the path below root, with the operation
	onCall func(call string)

	mu      sync.Mutex
	created map[string]bool // by callers
}

// contents are the files and directories (with a slash) that the kernel creates in new directories.
var contents = map[string][]string{
	"core/*":            {"hba_info"},
	"core/*/*":          {"control", "enable", "info", "wwn/vpd_unit_serial"},
	"iscsi":             {"discovery_auth/enforce_discovery_auth"},
	"iscsi/*":           {"fabric_statistics/"},
	"iscsi/*/*":         {"enable", "dynamic_sessions", "attrib/", "lun/", "np/", "acls/"},
	"iscsi/*/*/lun/*":   {"alua_tg_pt_gp"},
	"iscsi/*/*/np/*":    {"iser"},
	"iscsi/*/*/attrib/": {"authentication", "demo_mode_write_protect", "generate_node_acls"},
}

func newConfigfs(t *testing.T) *configfs {
	t.Helper()
	f := &configfs{t: t, fail: map[string]error{}, created: map[string]bool{}, onCall: func(string) {}}
	f.root = f.system(t.TempDir())
	if err := os.MkdirAll(filepath.Join(f.root, "core"), 0o755); err != nil {
		t.Fatal(err)
	}
	return f
}

func (f *configfs) system(dir string) string {
	return sysfs.Root{Path: dir}.Sys("kernel/config/target")
}

// call records an operation, and returns the error that it has in this test.
func (f *configfs) call(operation, path string) (name string, err error) {
	name, err = filepath.Rel(f.root, path)
	if err != nil {
		f.t.Error(err)
	}
	f.onCall(operation + " " + name)
	return name, f.fail[operation+" "+name]
}

func (f *configfs) Mkdir(path string) error {
	name, err := f.call("mkdir", path)
	if err != nil {
		return err
	}
	if err := os.Mkdir(path, 0o755); err != nil {
		return err
	}
	f.mark(name, true)
	for pattern, inside := range contents {
		if ok, _ := filepath.Match(pattern, name); ok {
			f.populate(path, inside)
		}
	}
	if ok, _ := filepath.Match("iscsi/*/*", name); ok {
		f.populate(filepath.Join(path, "attrib"), contents["iscsi/*/*/attrib/"])
	}
	return nil
}

func (f *configfs) populate(path string, inside []string) {
	for _, name := range inside {
		child := filepath.Join(path, name)
		dir := filepath.Dir(child)
		if strings.HasSuffix(name, "/") {
			dir = child
		}
		if err := os.MkdirAll(dir, 0o755); err != nil {
			f.t.Fatal(err)
		}
		if dir == child {
			continue
		}
		if err := os.WriteFile(child, []byte("0\n"), 0o600); err != nil {
			f.t.Fatal(err)
		}
	}
	if sessions := filepath.Join(path, "dynamic_sessions"); strings.Contains(path, "tpgt_") {
		_ = os.Truncate(sessions, 0)
	}
}

func (f *configfs) mark(name string, exists bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if exists {
		f.created[name] = true
	} else {
		delete(f.created, name)
	}
}

// objects returns what callers have created below a directory.
func (f *configfs) objects(name string) (below []string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for object := range f.created {
		if name == "" || strings.HasPrefix(object, name+"/") {
			below = append(below, object)
		}
	}
	return below
}

func (f *configfs) Rmdir(path string) error {
	name, err := f.call("rmdir", path)
	if err != nil {
		return err
	}
	if _, err := os.Stat(path); err != nil {
		return err
	}
	if len(f.objects(name)) > 0 {
		return &fs.PathError{Op: "rmdir", Path: path, Err: unix.ENOTEMPTY}
	}
	for _, object := range f.objects("") {
		if to, err := os.Readlink(filepath.Join(f.root, object)); err == nil && to == path {
			return &fs.PathError{Op: "rmdir", Path: path, Err: unix.EBUSY}
		}
	}
	f.mark(name, false)
	return os.RemoveAll(path)
}

func (f *configfs) Symlink(target, path string) error {
	name, err := f.call("symlink", path)
	if err != nil {
		return err
	}
	enabled, err := f.kernelFiles.Read(filepath.Join(target, "enable"))
	if err != nil || strings.TrimSpace(enabled) != "1" {
		return &fs.PathError{Op: "symlink", Path: path, Err: unix.EINVAL}
	}
	f.mark(name, true)
	return os.Symlink(target, path)
}

func (f *configfs) Unlink(path string) error {
	name, err := f.call("unlink", path)
	if err != nil {
		return err
	}
	f.mark(name, false)
	return os.Remove(path)
}

func (f *configfs) Write(path, value string) error {
	name, err := f.call("write", path)
	if err != nil {
		return err
	}
	if filepath.Base(name) == "control" {
		device, _ := strings.CutPrefix(value, "udev_path=")
		return f.kernelFiles.Write(filepath.Join(filepath.Dir(path), "info"), info(device))
	}
	if strings.HasSuffix(name, "tpgt_1/enable") && value == "0" {
		if enabled, err := f.kernelFiles.Read(path); err != nil || strings.TrimSpace(enabled) == "0" {
			return &fs.PathError{Op: "write", Path: path, Err: unix.EINVAL}
		}
		if err := os.Truncate(filepath.Join(filepath.Dir(path), "dynamic_sessions"), 0); err != nil {
			return err
		}
	}
	return f.kernelFiles.Write(path, value)
}

func (f *configfs) Read(path string) (string, error) {
	if _, err := f.call("read", path); err != nil {
		return "", err
	}
	return f.kernelFiles.Read(path)
}

// info is the text that the kernel shows for a back end.
func info(device string) string {
	return "Status: DEACTIVATED  Max Queue Depth: 0  SectorSize: 0  HwMaxSectors: 0\n" +
		"        iBlock device: sda  UDEV PATH: " + device + "  readonly: 0\n" +
		"        Major: 8 Minor: 0  CLAIMED: IBLOCK\n"
}

// login sets the initiators that are logged in, in the kernel's form.
func (f *configfs) login(x Export, initiators ...string) {
	f.t.Helper()
	text := ""
	for _, name := range initiators {
		text += name + "\n\x00"
	}
	path := filepath.Join(f.root, "iscsi", x.Name, "tpgt_1/dynamic_sessions")
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		f.t.Fatal(err)
	}
}

// fakeRestriction records the portal and the peer of a restriction, and whether it is active.
type fakeRestriction struct {
	portal  netip.AddrPort
	peer    netip.Addr
	active  bool
	liftErr error // result of lift
}

func (f *fakeRestriction) begin(portal netip.AddrPort, peer netip.Addr) (restriction, error) {
	if f.active {
		return nil, errors.New("restricted twice")
	}
	f.portal, f.peer, f.active = portal, peer, true
	return f, nil
}

func (f *fakeRestriction) lift() error {
	if f.liftErr != nil {
		return f.liftErr
	}
	f.active = false
	return nil
}
