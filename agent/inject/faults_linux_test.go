package inject

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"ironroot/agent/imaging"
	"ironroot/agent/node"
	"ironroot/internal/test/imagetest"
	"ironroot/internal/test/raidtest"
	"ironroot/internal/test/testenv"
	"ironroot/storage/block"
	"ironroot/storage/mounted"
	"ironroot/storage/sysfs"
)

// mountedDir returns a new directory as a mounted file system.
func mountedDir(t *testing.T) (dir string, fs *mounted.FS) {
	t.Helper()
	dir = t.TempDir()
	return dir, asMounted(t, dir)
}

// asMounted returns a directory as a mounted file system.
func asMounted(t *testing.T, dir string) *mounted.FS {
	t.Helper()
	testenv.Linux(t, "openat2")
	root, err := unix.Open(dir, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	fs := mounted.New(dir, root)
	t.Cleanup(func() {
		if err := fs.Close(); err != nil {
			t.Error(err)
		}
	})
	return fs
}

// A file that cannot be synced is an error: its content may not be on the device. procfs has no fsync(2).
func TestInjectFilesNotSynced(t *testing.T) {
	const name = "/comm" // of this process
	fs := asMounted(t, "/proc/self")
	before, err := os.ReadFile("/proc/self/comm")
	if err != nil {
		t.Fatal(err)
	}
	f := file{path: name, data: before, owner: -1, group: -1}
	err = newInjector(t).write(t.Context(), fs, f, true)
	if failed := (*os.PathError)(nil); !errors.As(err, &failed) || failed.Op != "sync" ||
		!errors.Is(err, unix.EINVAL) || !strings.HasSuffix(failed.Path, name) {
		t.Errorf("got %v, want %v of the sync of %s", err, unix.EINVAL, name)
	}
}

// A file whose owner or mode cannot be set is an error.
func TestInjectFilesWithoutPermission(t *testing.T) {
	testenv.Root(t)
	for name, c := range map[string]struct {
		capability uint
		file       file
	}{
		"owner":     {unix.CAP_CHOWN, file{path: "/file", owner: 1000, group: -1}},
		"mode":      {unix.CAP_FOWNER, file{path: "/file", owner: -1, group: -1, mode: 0o600}},
		"directory": {unix.CAP_CHOWN, file{path: "/new/file", owner: -1, group: 7, dirMode: 0o700}},
	} {
		t.Run(name, func(t *testing.T) {
			dir, fs := mountedDir(t)
			file := filepath.Join(dir, "file")
			if err := errors.Join(os.WriteFile(file, nil, 0o666), os.Chown(file, 5, 5)); err != nil {
				t.Fatal(err)
			}
			testenv.DropCapability(t, c.capability)
			if err := newInjector(t).write(t.Context(), fs, c.file, true); !errors.Is(err, unix.EPERM) ||
				!strings.Contains(err.Error(), c.file.path) {
				t.Errorf("got %v, want %v with the path %s", err, unix.EPERM, c.file.path)
			}
		})
	}
}

// The mode of a directory that belongs to somebody else is not changed without an error.
func TestChangeDirModeWithoutPermission(t *testing.T) {
	testenv.Root(t)
	dir, fs := mountedDir(t)
	name := filepath.Join(dir, "theirs")
	if err := errors.Join(os.Mkdir(name, 0o755), os.Chown(name, 5, 5)); err != nil {
		t.Fatal(err)
	}
	testenv.DropCapability(t, unix.CAP_FOWNER)
	if err := changeDirMode(fs, "/theirs", 0o700); !errors.Is(err, unix.EPERM) {
		t.Errorf("got %v, want %v", err, unix.EPERM)
	}
}

// A file is written to a regular file only, and a directory is not created below a file.
func TestInjectFilesOverOtherFiles(t *testing.T) {
	dir, fs := mountedDir(t)
	pipe := filepath.Join(dir, "pipe")
	if err := errors.Join(unix.Mkfifo(pipe, 0o600), os.WriteFile(filepath.Join(dir, "file"), nil, 0o600)); err != nil {
		t.Fatal(err)
	}
	reader, err := os.OpenFile(pipe, os.O_RDONLY|unix.O_NONBLOCK, 0) // without it the pipe cannot be opened
	if err != nil {
		t.Fatal(err)
	}
	defer reader.Close() //nolint:errcheck // only read
	in := newInjector(t)
	for path, want := range map[string]error{"/pipe": unix.EINVAL, "/file/a/b": unix.ENOTDIR} {
		f := file{path: path, data: []byte("content"), owner: -1, group: -1}
		if err := in.write(t.Context(), fs, f, true); !errors.Is(err, want) {
			t.Errorf("%s: got %v, want %v", path, err, want)
		}
	}
	if n, err := unix.Read(int(reader.Fd()), make([]byte, 10)); n > 0 {
		t.Errorf("got %d bytes and %v from the pipe, want none", n, err)
	}
	if err := changeDirMode(fs, "/missing", 0o700); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("missing directory: got %v, want %v", err, os.ErrNotExist)
	}
}

// A device that may be protected, or that cannot be compared with the skip list, is an error.
func TestInjectionDeviceOfUnknownDisks(t *testing.T) {
	broken := errors.New("broken")
	disk := block.Device{Name: "sda", Path: "/dev/sda", Serial: "S3X9", Serials: []string{"S3X9"}}
	unread := block.Device{Name: "sda", Path: "/dev/sda", Unread: broken}
	for name, c := range map[string]struct {
		disk  block.Device
		err   error
		entry string // of skip_block_devices
		want  string
	}{
		"list fails":      {disk, broken, `{"serial": "x"}`, "list disks: broken"},
		"no hint":         {disk, nil, `{"colour": "blue"}`, "colour"},
		"no number":       {disk, nil, `{"serial": ">= 100"}`, "device /dev/sda: entry 1 of skip_block_devices"},
		"serial not read": {unread, nil, `{"serial": "x"}`, "device /dev/sda: "},
	} {
		in := newInjector(t)
		raidtest.ListDisks(t, in.System, "2048", "sda")
		in.Disks = fakeDisks{[]block.Device{c.disk}, c.err}
		in.Node = nodeWith(t, `"properties": {"skip_block_devices": [`+c.entry+`]}`)
		_, err := in.namedDevice(t.Context(), "/dev/sda")
		if typeOf(err) != "DeviceNotFound" || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: got %v, want DeviceNotFound with %q", name, err, c.want)
		}
	}
}

// cancelOnWarning calls a function when a warning is logged.
type cancelOnWarning struct {
	slog.Handler
	cancel func()
}

func (h cancelOnWarning) Enabled(context.Context, slog.Level) bool { return true }

func (h cancelOnWarning) Handle(_ context.Context, r slog.Record) error {
	if r.Level == slog.LevelWarn {
		h.cancel()
	}
	return nil
}

// Without a root disk, or on one without a partition table, a file has no place.
func TestInjectFilesWithoutPartitions(t *testing.T) {
	d := newInjectionDisk(t)
	long := strings.Repeat("d", 256) // longer than a name can be
	if err := d.files(`[{"path": "/` + long + `/file", "content": ""}]`); typeOf(err) != "DeviceNotFound" ||
		!strings.Contains(err.Error(), d.path+"p4 (unreadable)") {
		t.Errorf("long name: got %v, want DeviceNotFound with the partitions", err)
	}
	ctx, cancel := context.WithCancelCause(t.Context())
	aborted := errors.New("aborted")
	d.in.Log = slog.New(cancelOnWarning{slog.DiscardHandler, func() { cancel(aborted) }})
	if _, err := d.in.findDevice(ctx, d.path, file{path: "/etc/file"}); !errors.Is(err, aborted) {
		t.Errorf("cancelled: got %v, want %v", err, aborted)
	}
	raidtest.Write(t, d.path, 0, make([]byte, raidtest.MiB))
	raidtest.Write(t, d.path, 63*raidtest.MiB, make([]byte, raidtest.MiB))
	if err := d.files(`[{"path": "/etc/file", "content": ""}]`); typeOf(err) != "DeviceNotFound" ||
		!strings.Contains(err.Error(), "partition for /etc/file: ") {
		t.Errorf("no table: got %v, want DeviceNotFound", err)
	}
	d.in.Imager = imaging.New(imaging.Options{
		Config: d.conf, Node: &node.Cache{}, Disks: fakeDisks{}, Log: d.in.Log,
	})
	for _, place := range []string{"", `, "partition": 4`} {
		err := d.files(`[{"path": "/etc/file", "content": ""` + place + `}]`)
		if typeOf(err) != "DeviceNotFound" {
			t.Errorf("no disk: got %v, want DeviceNotFound", err)
		}
	}
}

// Files and file systems are closed: what is open keeps a disk in use.
func TestInjectFilesCloses(t *testing.T) {
	d := newInjectionDisk(t)
	server := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		_, _ = io.WriteString(w, "content")
	}))
	connections := imagetest.CountConnections(server)
	server.Start()
	defer server.Close()
	if err := d.files(`[{"path": "/etc/new/file", "dirmode": 448, "content": "` + server.URL + `/"}]`); err != nil {
		t.Fatal(err)
	}
	for n := range 5 {
		part, err := os.OpenFile(block.PartitionPath(d.in.System, d.path, n+1), os.O_RDWR|unix.O_EXCL, 0)
		if err != nil {
			t.Errorf("got %v, want that no partition is in use", err)
			continue
		}
		_ = part.Close()
	}
	connections.AwaitClosed(t, "content")
}

// A device with a member of an array that the node protects gets no file.
func TestInjectionDeviceOfArray(t *testing.T) {
	disk := raidtest.MemberDisk(t, testenv.RAID{Name: "root", Level: 1})
	in := newInjector(t, disk)
	in.System, in.Node = sysfs.Root{}, nodeWith(t, `"properties": {"skip_block_devices": [{"volume_name": "root"}]}`)
	_, err := in.namedDevice(t.Context(), disk.Path)
	if typeOf(err) != "DeviceNotFound" || !strings.Contains(err.Error(), "is protected by skip_block_devices") {
		t.Errorf("got %v, want DeviceNotFound for a protected device", err)
	}
}
