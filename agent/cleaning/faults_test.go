package cleaning

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"

	"ironroot/agent/config"
	"ironroot/agent/status"
	"ironroot/internal/test/disktest"
	"ironroot/internal/test/raidtest"
	"ironroot/internal/test/testenv"
	"ironroot/storage/block"
	"ironroot/storage/erase"
	"ironroot/storage/sysfs"
)

func startErase(t *testing.T, m *Steps) *diskRun {
	t.Helper()
	run, err := m.startDiskRun(t.Context(), nil, "disk not erased", fullErase)
	if err != nil {
		t.Fatal(err)
	}
	return run
}

// A step that cannot list the disks fails. Otherwise it waits for holders as configured by disk_partitioner.
func TestStartErase(t *testing.T) {
	broken := errors.New("broken")
	m := newMachine(t)
	m.o.Disks = disktest.Lister(func(context.Context) ([]block.Device, error) { return nil, broken })
	for name, step := range erasing(m) {
		if result, err := step(t.Context(), nil); !errors.Is(err, broken) {
			t.Errorf("%s: got %v and %v, want %v", name, result, err, broken)
		}
	}
	m = newMachine(t)
	if err := os.MkdirAll(m.o.System.Sys(), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(m.o.System.Sys("block"), nil, 0o600); err != nil { // no directory
		t.Fatal(err)
	}
	for name, step := range erasing(m) {
		if result, err := step(t.Context(), nil); !errors.Is(err, unix.ENOTDIR) {
			t.Errorf("%s without a list of the kernel: got %v and %v, want %v", name, result, err, unix.ENOTDIR)
		}
	}
	m = newMachine(t, block.Device{Path: "/dev/sda"}, block.Device{Path: "/dev/sdb"},
		block.Device{Path: "/dev/md0", Type: "raid1"}, block.Device{Path: "/dev/dm-0", Type: "mpath"},
		block.Device{Path: "/dev/nvme0n1"})
	m.o.Config.Update(func(c *config.Config) {
		c.DiskPartitioner.CheckDeviceInterval, c.DiskPartitioner.CheckDeviceMaxRetries = 7*time.Second, 11
	})
	run := startErase(t, m)
	if want := (erase.Wait{Interval: 7 * time.Second, Retries: 11}); run.flags.wait != want {
		t.Errorf("got wait %+v, want %+v", run.flags.wait, want)
	}
	if got, want := paths(run.lastFirst()), []string{
		"/dev/md0", "/dev/dm-0", "/dev/nvme0n1", "/dev/sdb", "/dev/sda",
	}; !slices.Equal(got, want) {
		t.Errorf("got order %v, want arrays before their members: %v", got, want)
	}
	if got, want := paths(run.disks), []string{
		"/dev/sda", "/dev/sdb", "/dev/md0", "/dev/dm-0", "/dev/nvme0n1",
	}; !slices.Equal(got, want) {
		t.Errorf("got disks %v, want %v", got, want)
	}
}

// A disk that cannot be examined, or that fails, is not reported as erased.
func TestEraseErrors(t *testing.T) {
	broken := errors.New("broken")
	path := testenv.Loop(t, testenv.SparseFile(t, mib), 512)
	d := block.Device{Name: filepath.Base(path), Path: path}
	m := newMachine(t)
	raidtest.ListDisks(t, m.o.System, "2048", d.Name, "missing")
	run := startErase(t, m)
	fake(m).erase = func(context.Context, block.Device, erase.Options) error { return broken }
	report, err := eraseDisk(t.Context(), run, d)
	if !errors.Is(err, broken) || len(report.Erased) > 0 {
		t.Errorf("failing disk: got %v erased and %v, want none and %v", report.Erased, err, broken)
	}
	missing := block.Device{Name: "missing", Path: "/dev/missing"}
	unlisted := block.Device{Name: "unlisted", Path: "/dev/unlisted"}
	for _, gone := range []block.Device{missing, unlisted} {
		if untouched, err := run.protectedMembers(t.Context(), gone); !errors.Is(err, fs.ErrNotExist) {
			t.Errorf("members on %s: got %v and %v, want %v", gone.Name, untouched, err, fs.ErrNotExist)
		}
		if parts, err := run.neighbours(t.Context(), gone,
			map[string]string{"/dev/missing1": "protected"}); !errors.Is(err, fs.ErrNotExist) {
			t.Errorf("partitions of %s: got %v and %v, want %v", gone.Name, paths(parts), err, fs.ErrNotExist)
		}
	}
	if reason, err := run.skipReason(t.Context(), unlisted, true); !errors.Is(err, fs.ErrNotExist) || reason != "" {
		t.Errorf("reason to skip a disk that is not listed: got %q and %v, want %v", reason, err, fs.ErrNotExist)
	}
	m, _ = readOnlyNVMe(t)
	disks, err := m.o.Disks.Disks(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	run = startErase(t, m)
	if reason, err := run.skipReason(t.Context(), disks[0], false); !errors.Is(err, erase.ErrReadOnly) || reason != "" {
		t.Errorf("reason to skip a read-only disk: got %q and %v, want %v", reason, err, erase.ErrReadOnly)
	}
	m = newMachine(t)
	if result, err := m.ErasePstore(t.Context()); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("erase_pstore without mounts: got %v and %v, want %v", result, err, fs.ErrNotExist)
	}
	if err := m.RemoveBootEntries(t.Context(), nil); err == nil {
		t.Error("clean_uefi_nvram without UEFI: got no error")
	}
}

// erase_devices_express does not erase the metadata of an NVMe disk that is in use.
func TestExpressBusy(t *testing.T) {
	path := testenv.Loop(t, testenv.SparseFile(t, mib), 512)
	holder, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer holder.Close()
	m := newMachineOn(sysfs.Root{})
	d := block.Device{Name: filepath.Base(path), Path: path, Transport: "nvme"}
	if err := startErase(t, m).format(t.Context(), d, &erase.Recorder{}); !errors.Is(err, erase.ErrBusy) {
		t.Errorf("got %v, want %v", err, erase.ErrBusy)
	}
}

// The status shows a disk only while it is erased.
func TestEraseProgressEnds(t *testing.T) {
	path := testenv.Loop(t, testenv.SparseFile(t, mib), 512)
	m := newMachineOn(sysfs.Root{})
	board := status.NewBoard("1", nil)
	m.o.Board = board
	d := block.Device{Name: filepath.Base(path), Path: path, Type: "disk", Size: mib}
	record := &erase.Recorder{}
	err := startErase(t, m).eraseFully(t.Context(), d, nil, record)
	method := record.Report().String()
	if work := board.State().Work; err != nil || method != string(erase.Overwrite) || len(work) > 0 {
		t.Errorf("got %q, %v and work %v, want %q and none", method, err, work, erase.Overwrite)
	}
}

// trackFunc starts trackers. It announces no plan.
type trackFunc func(what, device string) status.Tracker

func (f trackFunc) Track(_ *slog.Logger, what, device string) status.Tracker { return f(what, device) }

func (f trackFunc) TrackAside(_ *slog.Logger, what, device string) status.Tracker {
	return f(what, device)
}

func (f trackFunc) Plan([]status.Item) *status.Plan { return nil }

// eventTracker records what it shows.
type eventTracker struct {
	status.Tracker
	events *[]string
}

func (e eventTracker) SetPercent(message string, percent *float64) {
	if percent != nil {
		message = fmt.Sprintf("%s: %.1f %%", message, *percent)
	}
	*e.events = append(*e.events, message)
}

func (e eventTracker) Set(done, total int64) {
	*e.events = append(*e.events, fmt.Sprintf("%d of %d", done, total))
}

func (e eventTracker) End() { *e.events = append(*e.events, "end") }

// eraseEvents erases a disk by a function that only observes the progress, and returns what is shown.
func eraseEvents(t *testing.T, progress ...erase.Progress) (events []string) {
	t.Helper()
	m := newMachine(t)
	m.o.Board = trackFunc(func(what, device string) status.Tracker {
		events = append(events, what+" "+device)
		return eventTracker{events: &events}
	})
	fake(m).erase = func(_ context.Context, _ block.Device, o erase.Options) error {
		for _, p := range progress {
			o.Recorder.Observer.Observe(p)
		}
		return nil
	}
	d := block.Device{Path: "/dev/sda"}
	if err := startErase(t, m).eraseFully(t.Context(), d, nil, &erase.Recorder{}); err != nil {
		t.Error(err)
	}
	return events
}

// The status shows how much of a disk is erased, and then how much is read back.
func TestEraseShowsProgress(t *testing.T) {
	events := eraseEvents(t, erase.Progress{Done: 3, Total: 4},
		erase.Progress{Phase: erase.ReadingBack, Done: 1, Total: 4},
		erase.Progress{Phase: erase.ReadingBack, Done: 2, Total: 4})
	want := []string{
		"erasing disk /dev/sda", "3 of 4", "end", "reading disk back /dev/sda", "1 of 4", "2 of 4", "end",
	}
	if diff := cmp.Diff(want, events); diff != "" {
		t.Errorf("events: -want +got:\n%s", diff)
	}
}

// Without disk_erasure_concurrency, disks are erased one at a time.
func TestEraseOneByOne(t *testing.T) {
	var disks []block.Device
	for range 3 {
		path := testenv.Loop(t, testenv.SparseFile(t, mib), 512)
		disks = append(disks, block.Device{Name: filepath.Base(path), Path: path, Type: "disk", Size: mib})
	}
	m := onThisMachine(t, disks...)
	var log strings.Builder
	m.o.Log = slog.New(slog.NewTextHandler(&log, nil)) // it locks the writer
	if _, err := m.EraseDevices(t.Context(), nil); err != nil {
		t.Fatal(err)
	}
	running, erased := 0, 0
	for line := range strings.Lines(log.String()) {
		switch {
		case strings.Contains(line, `msg="erasing disk" device`):
			running++
		case strings.Contains(line, `msg="device erased"`):
			running--
			erased++
		}
		if running > 1 {
			t.Fatalf("got %d disks at a time, want 1:\n%s", running, &log)
		}
	}
	if erased != len(disks) {
		t.Errorf("got %d disks erased, want %d", erased, len(disks))
	}
}

func TestNumbersAndBooleans(t *testing.T) {
	for value, want := range map[any]int{
		json.Number("3"): 3, " 4 ": 4, 5.0: 5, "many": 1, json.Number("1.5"): 1, true: 1, nil: 1,
	} {
		if got := number(value, 1); got != want {
			t.Errorf("number %v: got %d, want %d", value, got, want)
		}
	}
	for value, want := range map[any]bool{json.Number("0"): false, json.Number("2"): true, " No ": false} {
		if got := truth(value, !want); got != want {
			t.Errorf("boolean %v: got %v, want %v", value, got, want)
		}
	}
}
