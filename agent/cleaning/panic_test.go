package cleaning

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"ironroot/internal/goroutine"
	"ironroot/internal/test/raidtest"
	"ironroot/internal/test/testenv"
	"ironroot/storage/block"
	"ironroot/storage/erase"
	"ironroot/storage/partition"
	"ironroot/storage/sysfs"
)

// brokenLog is a log handler that panics when the erasure of a device begins.
type brokenLog struct{ device string }

func (brokenLog) Enabled(context.Context, slog.Level) bool { return true }
func (l brokenLog) WithAttrs([]slog.Attr) slog.Handler     { return l }
func (l brokenLog) WithGroup(string) slog.Handler          { return l }

func (l brokenLog) Handle(_ context.Context, r slog.Record) error {
	if strings.HasPrefix(r.Message, "erasing ") {
		r.Attrs(func(a slog.Attr) bool {
			if a.Key == "device" && a.Value.String() == l.device {
				panic("in the erasure of " + l.device)
			}
			return true
		})
	}
	return nil
}

// A panic while a disk is erased is an error of that disk: the others are erased, and the step fails and names it.
func TestEraseContainsPanics(t *testing.T) {
	disks := []block.Device{
		raidtest.PartitionedDisk(t, partition.TypeLinux),
		raidtest.PartitionedDisk(t, partition.TypeLinux),
		raidtest.PartitionedDisk(t, partition.TypeLinux),
	}
	broken := disks[1]
	n := nodeWith(t, `"driver_internal_info": {"disk_erasure_concurrency": 2}`)
	for name, step := range map[string]func(*Steps) stepFunc{
		"erase_devices":          func(m *Steps) stepFunc { return m.EraseDevices },
		"erase_devices_metadata": func(m *Steps) stepFunc { return m.EraseMetadata },
		"erase_devices_express":  func(m *Steps) stepFunc { return m.EraseExpress },
	} {
		m := onThisMachine(t, disks...)
		m.o.Log = slog.New(brokenLog{broken.Path})
		result, err := step(m)(t.Context(), n)
		var caught *goroutine.PanicError
		if typeOf(err) != "BlockDeviceEraseError" || !errors.As(err, &caught) || result != nil {
			t.Errorf("%s: got %v and %v, want a BlockDeviceEraseError with the panic", name, result, err)
			continue
		}
		erased, failed, _ := strings.Cut(err.Error(), "; not erased: ")
		for _, d := range []block.Device{disks[0], disks[2]} {
			if !strings.Contains(erased, d.Path+" (") || strings.Contains(failed, d.Path+":") {
				t.Errorf("%s: got %v, want an error that lists %s as erased", name, err, d.Path)
			}
		}
		if strings.Contains(erased, broken.Path) || !strings.Contains(failed, broken.Path+": internal error: panic: ") {
			t.Errorf("%s: got %v, want an error that names %s as not erased", name, err, broken.Path)
		}
	}
	for _, d := range disks {
		_, err := partition.Read(t.Context(), d.Path)
		if errors.Is(err, partition.ErrNoTable) == (d.Path == broken.Path) {
			t.Errorf("%s: got error %v of its table, want a table on %s alone", d.Path, err, broken.Path)
		}
	}
}

// A panic while a part of a disk is erased fails the disk. The report contains what was erased before.
func TestErasePartContainsPanics(t *testing.T) {
	d := raidtest.PartsDisk(t, 8*mib-8192, &testenv.RAID{Name: "root", Level: 1}, nil, nil)
	n := nodeWith(t, `"properties": {"skip_block_devices": [{"volume_name": "root"}]}`)
	m := onThisMachine(t, d)
	run, err := m.startDiskRun(t.Context(), n, "disk not erased", fullErase)
	if err != nil {
		t.Fatal(err)
	}
	first, second := block.PartitionPath(sysfs.Root{}, d.Path, 2), block.PartitionPath(sysfs.Root{}, d.Path, 3)
	fake(m).erase = func(_ context.Context, target block.Device, o erase.Options) error {
		if target.Path == second {
			panic("in a partition")
		}
		o.Recorder.Erased(erase.Overwrite)
		return nil
	}
	report, err := eraseDisk(t.Context(), run, d)
	var caught *goroutine.PanicError
	want := map[string]erase.Report{first: {Technique: erase.Overwrite}}
	if !errors.As(err, &caught) || !cmp.Equal(report.Erased, want) {
		t.Errorf("got report %+v and %v, want the panic and %v erased", report, err, want)
	}
	run.do(t.Context(), d, func(context.Context, block.Device) (diskReport, error) { panic("before the erasure") })
	if _, err := run.finish(); !errors.As(err, &caught) ||
		!strings.Contains(fmt.Sprint(err), d.Path+": internal error: panic: before the erasure") {
		t.Errorf("got %v, want the panic and the name of the disk", err)
	}
}

// A disk whose erase ended after the step gave up waiting is not listed as erased.
func TestEraseEndedTooLate(t *testing.T) {
	disk := raidtest.PartitionedDisk(t, partition.TypeLinux)
	m := onThisMachine(t, disk)
	run := startErase(t, m)
	ctx, cancel := context.WithCancel(t.Context())
	fake(m).erase = func(_ context.Context, _ block.Device, o erase.Options) error {
		cancel()
		o.Recorder.Erased(erase.Overwrite)
		return nil
	}
	report, err := eraseDisk(ctx, run, disk)
	if !errors.Is(err, context.Canceled) || len(report.Erased) > 0 {
		t.Errorf("got %v and %v, want %v and nothing erased", report.Erased, err, context.Canceled)
	}
}
