package generic

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"ironroot/agent/config"
	"ironroot/agent/fault"
	"ironroot/agent/hardware"
	"ironroot/agent/imaging"
	"ironroot/agent/inventory"
	"ironroot/agent/node"
	"ironroot/internal/test/disktest"
	"ironroot/internal/test/testenv"
	"ironroot/storage/block"
	"ironroot/storage/sysfs"
)

func newManager(t *testing.T, disks ...block.Device) *Manager {
	t.Helper()
	return New(Options{
		Config: config.NewLive(&config.Config{MD5Enabled: true}),
		System: sysfs.Root{Path: t.TempDir()},
		Disks:  disktest.Lister(func(context.Context) ([]block.Device, error) { return disks, nil }),
	})
}

func typeOf(err error) string {
	var f *fault.Error
	if errors.As(err, &f) {
		return f.Type
	}
	return ""
}

// Every listed step can be run, and rejects unknown arguments.
func TestStepsRun(t *testing.T) {
	m := newManager(t)
	m.o.Imager = imaging.New(imaging.Options{
		Config: m.o.Config, Node: &node.Cache{}, Disks: m.o.Disks, System: m.o.System,
	})
	for _, kind := range []hardware.Kind{hardware.Clean, hardware.Deploy, hardware.Service} {
		for _, step := range m.Steps(kind, nil, nil) {
			_, err := step.Run(t.Context(),
				hardware.Call{Args: map[string]json.RawMessage{"colour": json.RawMessage(`"blue"`)}})
			if got, want := typeOf(err), "InvalidCommandParamsError"; got != want {
				t.Errorf("%s %s: got %v, want %s", kind, step.Name, err, want)
			}
		}
	}
	if steps := m.Steps("unknown", nil, nil); len(steps) != 0 {
		t.Errorf("unknown kind: got %d steps", len(steps))
	}
}

// hiding is a site's manager that hides one disk.
type hiding struct{ hardware.Manager }

func (hiding) Class() string { return "SiteManager" }

func (hiding) Name() string { return "site" }

func (hiding) Version() string { return "1" }

func (hiding) Support(context.Context) hardware.Level { return hardware.ServiceProvider }

func (hiding) FilterDevice(_ context.Context, d block.Device) (block.Device, bool, error) {
	return d, d.Name != "sda", nil
}

// lister lists fixed disks.
type lister struct {
	hardware.Manager
	disks []block.Device
}

func (l lister) Disks(context.Context) ([]block.Device, error) { return l.disks, nil }

// Parity: F2
func TestHiddenDiskIsNowhere(t *testing.T) {
	var managers *hardware.Managers
	disks := disktest.Lister(func(ctx context.Context) ([]block.Device, error) { return managers.Disks(ctx) })
	m := newManager(t)
	m.o.Disks = disks
	managers, err := hardware.Load(t.Context(), []hardware.Manager{hiding{}, lister{Manager: m, disks: []block.Device{
		{Name: "sda", Path: "/dev/sda", Size: 8 << 30}, {Name: "sdb", Path: "/dev/sdb", Size: 9 << 30},
	}}}, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	previews, err := m.PreviewErase(t.Context(), nil)
	if err != nil || len(previews) != 1 || previews[0].Disk.Path != "/dev/sdb" {
		t.Errorf("to erase: got %+v and %v, want /dev/sdb alone", previews, err)
	}
	root, err := imaging.New(imaging.Options{
		Config: m.o.Config, Node: &node.Cache{}, Disks: disks,
	}).RootDisk(t.Context(), false)
	if err != nil || root.Path != "/dev/sdb" {
		t.Errorf("root disk: got %s and %v, want /dev/sdb", root.Path, err)
	}
	sys := sysfs.Root{Path: t.TempDir()}
	if err := os.MkdirAll(filepath.Join(sys.Path, "sys/class/net"), 0o755); err != nil {
		t.Fatal(err)
	}
	inv, err := inventory.New(inventory.Options{System: sys, Disks: disks}).Collect(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if len(inv.Disks) != 1 || inv.Disks[0].Name != "/dev/sdb" {
		t.Errorf("inventory: got %v, want /dev/sdb alone", inv.Disks)
	}
}

func paths(disks []block.Device) []string {
	var list []string
	for _, d := range disks {
		list = append(list, d.Path)
	}
	return list
}

// checkWaitDisks checks whether WaitDisks waits until its limit. The limit is far away if it must not wait.
func checkWaitDisks(t *testing.T, m *Manager, n *node.Node, waits bool) {
	t.Helper()
	delay := 20 * time.Minute
	if waits {
		delay = 50 * time.Millisecond
	}
	m.o.Config.Update(func(c *config.Config) { c.DiskWaitAttempts, c.DiskWaitDelay = 2, delay })
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	started := time.Now()
	if err := m.WaitDisks(ctx, n); err != nil {
		t.Errorf("node %v: got %v, want no wait for disks", n, err)
	}
	if took := time.Since(started); waits && took < 2*delay {
		t.Errorf("node %v: waited %v, want %v", n, took, 2*delay)
	}
}

func TestWaitDisksGivesUpOnceANode(t *testing.T) {
	m := newManager(t)
	if err := os.MkdirAll(m.o.System.Sys("block"), 0o755); err != nil {
		t.Fatal(err)
	}
	n, err := node.FromJSON([]byte(`{"uuid": "u"}`))
	if err != nil {
		t.Fatal(err)
	}
	for _, tt := range []struct {
		node  *node.Node
		waits bool
	}{{nil, true}, {nil, false}, {n, true}, {n, false}} {
		checkWaitDisks(t, m, tt.node, tt.waits)
	}
}

// joinFunc implements Joiner.
type joinFunc func(context.Context, []block.Device) bool

func (f joinFunc) Join(ctx context.Context, disks []block.Device) bool { return f(ctx, disks) }

// Paths are joined before disks are listed, and during the wait for the root disk.
func TestPathsAreJoined(t *testing.T) {
	m := newManager(t)
	disk := func(name, uuid string) {
		for file, content := range map[string]string{"size": "16777216", "dm/uuid": uuid} {
			for _, dir := range []string{"block", "class/block"} {
				file := m.o.System.Sys(dir, name, file)
				if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
					t.Fatal(err)
				}
				if err := os.WriteFile(file, []byte(content), 0o600); err != nil {
					t.Fatal(err)
				}
			}
		}
	}
	disk("sda", "")
	joins := 0
	m.o.Join = joinFunc(func(_ context.Context, disks []block.Device) bool {
		joins++
		if got := paths(disks); !slices.Equal(got, []string{"/dev/sda"}) {
			return false
		}
		disk("dm-0", "mpath-3600")
		return true
	})
	m.o.Config.Update(func(c *config.Config) { c.DiskWaitAttempts, c.DiskWaitDelay = 1, time.Minute })
	n, err := node.FromJSON([]byte(`{"uuid": "u", "properties": {"root_device": {"name": "/dev/dm-0"}}}`))
	if err != nil {
		t.Fatal(err)
	}
	if err := m.WaitDisks(t.Context(), n); err != nil || joins != 1 {
		t.Errorf("got %v after %d joins, want the map to be found at once", err, joins)
	}
	disks, err := m.Disks(t.Context())
	if got := paths(disks); err != nil || joins != 2 || !slices.Contains(got, "/dev/dm-0") {
		t.Errorf("got %v, %v and %d joins, want the list to have been joined", got, err, joins)
	}
}

func TestWaitDisksWaitsForDrivers(t *testing.T) {
	settled := make(chan struct{})
	m := newManager(t)
	m.o.Settled = settled
	m.o.Config.Update(func(c *config.Config) { c.DiskWaitAttempts, c.DiskWaitDelay = 1, time.Minute })
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	if err := m.WaitDisks(ctx, nil); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("got %v before the drivers are there, want %v", err, context.DeadlineExceeded)
	}
}

// Without hints the time since the drivers were loaded counts; with hints every new node has the full time limit.
func TestWaitDisksCountsFromTheDrivers(t *testing.T) {
	m := newManager(t)
	if err := os.MkdirAll(m.o.System.Sys("block"), 0o755); err != nil {
		t.Fatal(err)
	}
	m.settledAt = time.Now().Add(-time.Hour)
	for _, tt := range []struct {
		node  string
		waits bool
	}{
		{`{"uuid": "plain"}`, false},
		{`{"uuid": "hints", "properties": {"root_device": {"serial": "later"}}}`, true},
	} {
		n, err := node.FromJSON([]byte(tt.node))
		if err != nil {
			t.Fatal(err)
		}
		checkWaitDisks(t, m, n, tt.waits)
	}
}

// Caches that are not dropped do not make a sync fail.
func TestSync(t *testing.T) {
	var log bytes.Buffer
	m := newManager(t)
	m.o.Log = slog.New(slog.NewTextHandler(&log, nil))
	if err := m.Sync(t.Context()); err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(log.String(), "caches not dropped") {
		t.Errorf("got log %s, want a warning of the caches", &log)
	}
	caches := m.o.System.Proc("sys/vm/drop_caches")
	if err := os.MkdirAll(filepath.Dir(caches), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(caches, nil, 0o600); err != nil { // readable without root, unlike the file that Sync makes
		t.Fatal(err)
	}
	if err := m.Sync(t.Context()); err != nil {
		t.Fatal(err)
	}
	if got, err := os.ReadFile(caches); err != nil || string(got) != "3" {
		t.Errorf("drop_caches: got %q and %v, want 3", got, err)
	}
}

// A sync also writes the dirty pages of a disk that is not listed.
func TestSyncWritesDirtyPages(t *testing.T) {
	backing := testenv.SparseFile(t, mib)
	disk, err := os.OpenFile(testenv.Loop(t, backing, 512), os.O_WRONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer disk.Close() // the last close writes the pages, too
	written := bytes.Repeat([]byte("dirty"), 1000)
	if _, err := disk.Write(written); err != nil {
		t.Fatal(err)
	}
	if err := newManager(t).Sync(t.Context()); err != nil {
		t.Fatal(err)
	}
	got, err := os.ReadFile(backing)
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.HasPrefix(got, written) {
		t.Error("the file behind the loop device lacks what was written before the sync")
	}
}
