package cleaning

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"regexp"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"ironroot/agent/hardware/burnin"
	"ironroot/agent/node"
	"ironroot/agent/softraid"
	"ironroot/agent/status"
	"ironroot/internal/test/raidtest"
	"ironroot/storage/block"
	"ironroot/storage/erase"
	"ironroot/storage/raid"
)

// planned keeps the sizes of a plan by device.
type planned map[string]int64

func (planned) Track(*slog.Logger, string, string) status.Tracker { return nil }

func (planned) TrackAside(*slog.Logger, string, string) status.Tracker { return nil }

func (p planned) Plan(items []status.Item) *status.Plan {
	for _, i := range items {
		p[i.Device] = i.Size
	}
	return nil
}

// onBoard lets a manager show its progress on a board, during a step.
func onBoard(m *Steps, step string) *status.Board {
	board := status.NewBoard("1", nil)
	m.o.Board = board
	board.Begin("clean.execute_clean_step", step)
	return board
}

// The percentage of an erase counts all disks by their size, also those that wait. A disk that is left untouched does
// not count.
//
// Parity: T12 (percentage of an erase)
func TestErasePercentage(t *testing.T) {
	disks := []block.Device{
		raidtest.BlankDisk(t, mib), raidtest.BlankDisk(t, 2*mib),
		raidtest.BlankDisk(t, mib), raidtest.BlankDisk(t, mib),
	}
	var got []string
	synctest.Test(t, func(t *testing.T) {
		m := onThisMachine(t, disks...)
		board := onBoard(m, "erase_devices")
		show := func() {
			text, _, _ := strings.Cut(board.Summary(), ",")
			got = append(got, text)
		}
		at := func(o erase.Options, phase erase.Phase, done, total int64) {
			time.Sleep(2 * time.Second) // longer than the interval of the board
			o.Recorder.Observer.Observe(erase.Progress{Phase: phase, Done: done, Total: total})
			show()
		}
		fake(m).erase = func(_ context.Context, d block.Device, o erase.Options) error {
			switch d.Path {
			case disks[0].Path: // two passes
				at(o, erase.Overwriting, 0, 2*mib)
				at(o, erase.Overwriting, 2*mib, 2*mib)
				at(o, erase.ReadingBack, 50, 100)
			case disks[1].Path: // erases itself, without an estimate
				o.Recorder.Observer.Observe(erase.Progress{Phase: erase.SelfErasing})
				show()
			case disks[2].Path:
				return fmt.Errorf("%s: %w", d.Path, errors.New("broken"))
			case disks[3].Path:
				show()
			}
			o.Recorder.Erased(erase.Overwrite)
			return nil
		}
		_, err := m.EraseDevices(t.Context(), nil)
		board.End(err)
		show()
	})
	last := len(got) - 1
	// The first disk; the second one; the last one, while the third one has failed.
	const want = "erase_devices: 0% erase_devices: 20% erase_devices: 20% erase_devices: 20% erase_devices: 60%"
	if strings.Join(got[:last], " ") != want {
		t.Errorf("got %q, want %q", got[:last], want)
	}
	if !strings.HasPrefix(got[last], "erase_devices: failed: ") {
		t.Errorf("got the result %q, want a failure", got[last])
	}
}

// A step that erases the metadata counts disks, and its result says what it has erased.
func TestMetadataResult(t *testing.T) {
	disks := []block.Device{raidtest.BlankDisk(t, mib), raidtest.BlankDisk(t, 2*mib)}
	n := nodeWith(t, `"properties": {"skip_block_devices": [{"name": "`+disks[0].Path+`"}]}`)
	for _, c := range []struct {
		node *node.Node
		want string
	}{
		{nil, "erase_devices_metadata: done, 2 disks with metadata erased in "},
		{n, "erase_devices_metadata: done, 1 disk with metadata erased in "},
	} {
		m := onThisMachine(t, disks...)
		board := onBoard(m, "erase_devices_metadata")
		_, err := m.EraseMetadata(t.Context(), c.node)
		board.End(err)
		if got := board.Summary(); err != nil || !strings.HasPrefix(got, c.want) {
			t.Errorf("got %q and %v, want %q", got, err, c.want)
		}
	}
}

// A read-only disk fails the erase, or is left untouched if the node allows it. The result says so.
func TestReadOnlyResult(t *testing.T) {
	for skip, want := range map[bool]string{
		true:  `^erase_devices: done, 1 disk left untouched in \S+$`,
		false: `^erase_devices: failed: erased: none; not erased: \S+: device is read-only$`,
	} {
		m, _ := readOnlyNVMe(t)
		board := onBoard(m, "erase_devices")
		fields := fmt.Sprintf(`"driver_internal_info": {"agent_erase_skip_read_only": %t}`, skip)
		_, err := m.EraseDevices(t.Context(), nodeWith(t, fields))
		board.End(err)
		if got := board.Summary(); !regexp.MustCompile(want).MatchString(got) {
			t.Errorf("%s: got %q, want %s", fields, got, want)
		}
	}
}

// The summary of a burn-in has the percentage of all disks, and its result their number.
//
// Parity: T12 (percentage of a burn-in)
func TestBurninPercentage(t *testing.T) {
	disk := raidtest.BlankDisk(t, mib)
	synctest.Test(t, func(t *testing.T) {
		m := onThisMachine(t, disk)
		board := onBoard(m, "burnin_disk")
		during := ""
		fake(m).test = func(
			_ context.Context, _ burnin.Medium, size int64, _ burnin.DiskOptions, progress func(done, total int64),
		) (burnin.DiskReport, error) {
			time.Sleep(3 * time.Second)
			progress(3*size, 4*size)
			during = board.Summary()
			return burnin.DiskReport{}, nil
		}
		_, err := burninDisk(t.Context(), t, m, burninNode(t, ""))
		board.End(err)
		const result = "burnin_disk: done, 1 disk tested in 3s"
		if got := board.Summary(); err != nil || got != result {
			t.Errorf("got %q and %v, want %q", got, err, result)
		}
		want := "burnin_disk: 75%, testing disk " + disk.Path + ", 1.0 MiB/s, 1s left"
		if during != want {
			t.Errorf("got %q, want %q", during, want)
		}
	})
}

// arrayOf is an array that Ironic created, with members of so many bytes on disks, from their beginning. The first 10
// bytes of a member are its superblock.
func arrayOf(name string, size int64, disks ...block.Device) *softraid.Volume {
	a := &softraid.Volume{}
	for role, d := range disks {
		m := raid.Member{Device: block.Device{Path: d.Path + "1", Size: size}, Disk: d}
		m.Name, m.Level, m.Role, m.DataOffset = name, "raid1", role, 10
		a.Members = append(a.Members, m)
	}
	return a
}

// The progress of a step has its disks and the arrays whose content it erases, by their bytes or each as one.
func TestProgressItems(t *testing.T) {
	sda := block.Device{Path: "/dev/sda", Size: 1000}
	sdb := block.Device{Path: "/dev/sdb", Size: 500}
	nvme := block.Device{Path: "/dev/nvme0n1", Size: 300, Transport: "nvme"}
	onDisks, onNVMe := arrayOf("host:disks", 400, sda, sdb), arrayOf("host:nvme", 100, nvme)
	for step, want := range map[string]map[string]int64{
		fullErase: {
			onDisks.String(): 780, onNVMe.String(): 90, "/dev/sda": 600, "/dev/sdb": 100, "/dev/nvme0n1": 200,
		},
		expressErase:             {onNVMe.String(): 1, "/dev/sda": 1, "/dev/sdb": 1, "/dev/nvme0n1": 1},
		"erase_devices_metadata": {"/dev/sda": 1, "/dev/sdb": 1, "/dev/nvme0n1": 1},
	} {
		m := newMachine(t)
		got := map[string]int64{}
		m.o.Board = planned(got)
		r := &diskRun{
			m: m, disks: []block.Device{sda, sdb, nvme},
			kept:  keptArrays{arrays: []*softraid.Volume{onDisks, onNVMe}},
			flags: eraseFlags{step: step, nvme: true},
		}
		r.announce()
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("%s (-want +got):\n%s", step, diff)
		}
	}
}

// The partitions of a disk count by their bytes, without members of arrays, and so does the space outside of them.
func TestProgressOfPartitions(t *testing.T) {
	for step, want := range map[string][]string{
		fullErase: {"30%", "30%", "100%"}, expressErase: {"0%", "0%", "0%"},
	} {
		synctest.Test(t, func(t *testing.T) {
			disk := block.Device{Path: "/dev/sda", Size: 1000}
			a := arrayOf("host:a", 500, disk)
			m := newMachine(t)
			board := onBoard(m, step)
			r := &diskRun{
				m: m, flags: eraseFlags{step: step}, disks: []block.Device{disk},
				kept: keptArrays{
					arrays: []*softraid.Volume{a}, members: map[string]raid.Member{"/dev/sda1": a.Members[0]},
				},
			}
			r.progress = board.Plan([]status.Item{{Device: "/dev/sda", Size: 500}})
			r.splitItem(disk, []block.Device{a.Members[0].Device, {Path: "/dev/sda2", Size: 150}})
			var got []string
			for _, path := range []string{"/dev/sda2", "/dev/sda1", "/dev/sda"} {
				tracker := m.track("erasing disk", path)
				tracker.Set(7, 7)
				percent, _, _ := strings.Cut(strings.TrimPrefix(board.Summary(), step+": "), ",")
				got = append(got, percent)
				tracker.End()
			}
			if diff := cmp.Diff(want, got); diff != "" {
				t.Errorf("%s (-want +got):\n%s", step, diff)
			}
		})
	}
}

// The result of a step says of each disk what its evidence does: a disk of which some partitions were left is not
// erased. Errors count, whether the erase or something before it has failed.
func TestOutcome(t *testing.T) {
	erased := func(techniques ...erase.Technique) diskReport {
		r := diskReport{Erased: map[string]erase.Report{}}
		for i, technique := range techniques {
			r.Erased[fmt.Sprint(i)] = erase.Report{Technique: technique}
		}
		return r
	}
	d := block.Device{Path: "/dev/sda"}
	partly := erased(erase.Overwrite)
	partly.Untouched = map[string]string{"/dev/sda2": "named by skip_block_devices"}
	partlyMetadata := erased(erase.MetadataOnly)
	partlyMetadata.Untouched = partly.Untouched
	broken := errors.New("broken")
	for name, c := range map[string]struct {
		report  diskReport
		err     error // of the erase
		earlier error // of the disk, before the erase
		want    status.Outcome
	}{
		"failed":        {erased(erase.Overwrite), broken, nil, status.Failed},
		"failed before": {erased(erase.Overwrite), nil, broken, status.Failed},
		"tested":        {diskReport{tested: &burnin.DiskReport{}}, nil, nil, status.Tested},
		"left":          {untouched(d, "read-only"), nil, nil, status.Untouched},
		"metadata": {
			erased(erase.MetadataOnly, erase.MetadataOnly), nil, nil, status.MetadataErased,
		},
		"both":           {erased(erase.MetadataOnly, erase.Overwrite), nil, nil, status.Erased},
		"partly":         {partly, nil, nil, status.PartlyErased},
		"partly, tables": {partlyMetadata, nil, nil, status.PartlyErased},
	} {
		m := onThisMachine(t)
		board := onBoard(m, fullErase)
		r := &diskRun{
			m: m, phrase: "not erased", flags: eraseFlags{step: fullErase},
			results: newResults(nil, fullErase, eraseFlags{}), disks: []block.Device{d},
		}
		r.results.add(r.disks)
		r.announce()
		if c.earlier != nil {
			r.fail(d, c.earlier)
		}
		r.do(t.Context(), d, func(context.Context, block.Device) (diskReport, error) { return c.report, c.err })
		got := board.State().Job.Planned.Finished
		if diff := cmp.Diff(map[status.Outcome]int{c.want: 1}, got); diff != "" {
			t.Errorf("%s: outcome differs (-want +got):\n%s", name, diff)
		}
	}
}
