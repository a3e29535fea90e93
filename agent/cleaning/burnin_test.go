package cleaning

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"ironroot/agent/hardware/burnin"
	"ironroot/agent/status"
	"ironroot/internal/test/raidtest"
	"ironroot/internal/test/testenv"
	"ironroot/internal/timelimit"
	"ironroot/storage/block"
	"ironroot/storage/erase"
	"ironroot/storage/partition"
)

// All disks are written, except those that the node protects. The result lists each.
func TestBurninDisk(t *testing.T) {
	disk := raidtest.PartitionedDisk(t, partition.TypeLinux)
	protected := raidtest.PartitionedDisk(t, partition.TypeLinux)
	before := content(t, protected)
	m := onThisMachine(t, disk, protected)
	out := filepath.Join(t.TempDir(), "fio.json")
	n := nodeWith(t, `"properties": {"skip_block_devices": [{"serial": "`+protected.Serial+`"}]},
		"driver_info": {"agent_burnin_fio_disk_loops": 2, "agent_burnin_fio_disk_outputfile": "`+out+`"}`)
	result, err := burninDisk(t.Context(), t, m, n)
	if err != nil {
		t.Fatal(err)
	}
	text, err := json.Marshal(result)
	if err != nil {
		t.Fatal(err)
	}
	var got map[string]struct {
		Size, Written, Verified int64
		Untouched               map[string]string
	}
	if err := json.Unmarshal(text, &got); err != nil {
		t.Fatal(err)
	}
	if r := got[disk.Path]; r.Size != diskSize || r.Written != 2*diskSize || r.Verified != 2*diskSize {
		t.Errorf("got %s, want two passes of %d bytes on %s", text, diskSize, disk.Path)
	}
	if reason := got[protected.Path].Untouched[protected.Path]; reason != "named by skip_block_devices" {
		t.Errorf("got %s, want %s untouched", text, protected.Path)
	}
	if !bytes.Equal(content(t, protected), before) {
		t.Error("the disk on the skip list was written to")
	}
	data := content(t, disk)
	for at := 0; at < diskSize; at += 4096 {
		if bytes.Equal(data[at:at+64], make([]byte, 64)) {
			t.Fatalf("the block at byte %d was not written", at)
		}
	}
	if parts, err := block.Partitions(t.Context(), m.o.System, disk.Path); err != nil || len(parts) != 0 {
		t.Errorf("got partitions %v and %v, want none", parts, err)
	}
	if text, err := os.ReadFile(out); err != nil || !strings.Contains(string(text), `"jobname": "`+disk.Path+`"`) {
		t.Errorf("got output file %s and %v", text, err)
	}
}

// A disk in use is not written to, and fails the step, while others are tested.
func TestBurninDiskInUse(t *testing.T) {
	disk, used := raidtest.PartitionedDisk(t, partition.TypeLinux), raidtest.PartitionedDisk(t, partition.TypeLinux)
	holder, err := os.Open(used.Path)
	if err != nil {
		t.Fatal(err)
	}
	defer holder.Close() //nolint:errcheck // only read
	before := content(t, used)
	m := impatient(onThisMachine(t, disk, used))
	var log bytes.Buffer
	m.o.Log = slog.New(slog.NewTextHandler(&log, nil))
	out := filepath.Join(t.TempDir(), "fio.json")
	result, err := burninDisk(t.Context(), t, m, burninNode(t, `"agent_burnin_fio_disk_loops": 1,
		"agent_burnin_fio_disk_outputfile": "`+out+`"`))
	if result != nil || typeOf(err) != "CommandExecutionError" ||
		!strings.Contains(err.Error(), used.Path+": device is in use: held by process ") ||
		!strings.HasSuffix(err.Error(), "tested without errors: "+disk.Path) {
		t.Errorf("got %v and %v, want an error of %s and success of %s", result, err, used.Path, disk.Path)
	}
	if !bytes.Equal(content(t, used), before) {
		t.Error("a disk in use was written to")
	}
	if text := log.String(); !strings.Contains(text, `msg="disk not tested"`) || strings.Contains(text, "erase") {
		t.Errorf("got log\n%s", text)
	}
	for _, d := range []block.Device{disk, used} {
		if text, err := os.ReadFile(out); err != nil || !strings.Contains(string(text), `"jobname": "`+d.Path+`"`) {
			t.Errorf("got output file %s and %v, want one with %s", text, err, d.Path)
		}
	}
}

// A storage controller without a driver fails the step, because its disks are not tested. The others are.
func TestBurninDiskUnbound(t *testing.T) {
	disk := raidtest.PartitionedDisk(t, partition.TypeLinux)
	m := onThisMachine(t, disk)
	fake(m).unbound = func(context.Context) ([]block.UnboundController, error) {
		return []block.UnboundController{{Address: "0000:03:00.0", ID: "1000:005d", Class: "0x010400"}}, nil
	}
	result, err := burninDisk(t.Context(), t, m, burninNode(t, `"agent_burnin_fio_disk_loops": 1`))
	if result != nil || typeOf(err) != "CommandExecutionError" ||
		!strings.Contains(err.Error(), "0000:03:00.0: storage controller 1000:005d of class 0x010400 has no driver") ||
		!strings.HasSuffix(err.Error(), "tested without errors: "+disk.Path) {
		t.Errorf("got %v and %v, want an error of the controller and success of %s", result, err, disk.Path)
	}
}

// A shared file system on any disk keeps all disks from being written to.
func TestBurninDiskShared(t *testing.T) {
	const vmfs = "AA31E02A-400F-11DB-9590-000C2911D1B8"
	disk, shared := raidtest.PartitionedDisk(t, partition.TypeLinux), raidtest.PartitionedDisk(t, vmfs)
	before := content(t, disk)
	_, err := burninDisk(t.Context(), t, onThisMachine(t, disk, shared), burninNode(t, ""))
	if typeOf(err) != "ProtectedDeviceError" {
		t.Errorf("got %v, want a ProtectedDeviceError", err)
	}
	if !bytes.Equal(content(t, disk), before) {
		t.Error("a disk was written to before all were checked")
	}
	bad := nodeWith(t, `"properties": {"skip_block_devices": [{"size": "x"}]}`)
	if _, err := burninDisk(t.Context(), t, onThisMachine(t, disk), bad); typeOf(err) !=
		"CommandExecutionError" || !strings.Contains(err.Error(), "burnin_disk: entry 1 of skip_block_devices") {
		t.Errorf("got %v, want a CommandExecutionError about the skip list", err)
	}
}

// A test of nothing is no success: a read-only disk fails the step, or is left if the node allows it. The output file
// has the disk that failed.
func TestBurninDiskReadOnly(t *testing.T) {
	m, _ := readOnlyNVMe(t)
	out := filepath.Join(t.TempDir(), "fio.json")
	for internal, want := range map[string]string{
		`{}`:                                   "device is read-only",
		`{"agent_erase_skip_read_only": true}`: "no disk was tested",
	} {
		n := nodeWith(t, `"driver_internal_info": `+internal+`,
			"driver_info": {"agent_burnin_fio_disk_outputfile": "`+out+`"}`)
		if result, err := burninDisk(t.Context(), t, m, n); result != nil || typeOf(err) != "CommandExecutionError" ||
			!strings.Contains(err.Error(), want) {
			t.Errorf("%s: got %v and %v, want %q", internal, result, err, want)
		}
		text, err := os.ReadFile(out)
		if got := strings.Contains(string(text), want); err != nil || got != (want == erase.ErrReadOnly.Error()) {
			t.Errorf("%s: got output file %s and %v", internal, text, err)
		}
	}
}

// A disk with a member of a protected array is not tested.
func TestBurninDiskMember(t *testing.T) {
	member := raidtest.MemberDisk(t, testenv.RAID{Name: "host:data", Level: 1})
	before := content(t, member)
	n := nodeWith(t, `"properties": {"skip_block_devices": [{"volume_name": "data"}]}`)
	result, err := burninDisk(t.Context(), t, onThisMachine(t, member), n)
	if result != nil || err == nil || !strings.Contains(err.Error(), "no disk was tested") {
		t.Errorf("got %v and %v, want an error: the only disk is protected", result, err)
	}
	if !bytes.Equal(content(t, member), before) {
		t.Error("a member of a protected array was written to")
	}
}

func TestBurninDiskCancelled(t *testing.T) {
	disk := raidtest.PartitionedDisk(t, partition.TypeLinux)
	m := onThisMachine(t, disk)
	aborted := errors.New("aborted")
	ctx, cancel := context.WithCancelCause(t.Context())
	m.o.Board = trackFunc(func(string, string) status.Tracker {
		return cancelling{(*status.Board)(nil).Track(m.o.Log, "", ""), func() { cancel(aborted) }}
	})
	result, err := burninDisk(ctx, t, m, burninNode(t, `"agent_burnin_fio_disk_runtime": "1h"`))
	if result != nil || !errors.Is(err, aborted) || strings.Contains(err.Error(), "tested without errors") {
		t.Errorf("got %v and %v, want %v", result, err, aborted)
	}
}

// A step that is cancelled after the last disk was tested is no success.
func TestBurninDiskCancelledLate(t *testing.T) {
	disk := raidtest.PartitionedDisk(t, partition.TypeLinux)
	m := onThisMachine(t, disk)
	aborted := errors.New("aborted")
	ctx, cancel := context.WithCancelCause(t.Context())
	fake(m).unbound = func(context.Context) ([]block.UnboundController, error) {
		cancel(aborted)
		return nil, nil
	}
	result, err := burninDisk(ctx, t, m, burninNode(t, `"agent_burnin_fio_disk_loops": 1`))
	if result != nil || !errors.Is(err, aborted) ||
		!strings.HasSuffix(err.Error(), "tested without errors: "+disk.Path) {
		t.Errorf("got %v and %v, want %v and success of %s", result, err, aborted, disk.Path)
	}
}

// The time limit of a disk applies to the time without progress, and the status shows the disk only while it is tested.
func TestBurninDiskProgress(t *testing.T) {
	disk := raidtest.PartitionedDisk(t, partition.TypeLinux)
	for name, c := range map[string]struct {
		interval time.Duration // between two reports of progress
		want     string
	}{
		"progress": {time.Minute, ""}, "no progress": {3 * time.Minute, disk.Path + ": no progress for 1m30s"},
	} {
		synctest.Test(t, func(t *testing.T) {
			m := onThisMachine(t, disk)
			board := status.NewBoard("1", nil)
			m.o.Board = board
			fake(m).limits = func(block.Device) timelimit.Limits {
				return timelimit.Limits{NoProgress: 90 * time.Second, Grace: time.Hour}
			}
			fake(m).test = func(
				_ context.Context, _ burnin.Medium, _ int64, _ burnin.DiskOptions, progress func(done, total int64),
			) (burnin.DiskReport, error) {
				for i := range int64(3) {
					time.Sleep(c.interval)
					progress(i+1, 3)
				}
				if work := board.State().Work; len(work) != 1 || work[0].Device != disk.Path || work[0].Done != 3 {
					t.Errorf("%s: got work %+v, want that of %s", name, work, disk.Path)
				}
				return burnin.DiskReport{}, nil
			}
			_, err := burninDisk(t.Context(), t, m, burninNode(t, ""))
			if (err == nil) != (c.want == "") || !strings.Contains(errorText(err), c.want) {
				t.Errorf("%s: got %v, want %q", name, err, c.want)
			}
			if work := board.State().Work; len(work) > 0 {
				t.Errorf("%s: got work %+v afterwards, want none", name, work)
			}
		})
	}
}

// A disk whose test fails is an error of that disk, in the output file, too.
func TestBurninDiskFails(t *testing.T) {
	good, bad := raidtest.PartitionedDisk(t, partition.TypeLinux), raidtest.BlankDisk(t, mib)
	m := onThisMachine(t, good, bad)
	fake(m).test = func(
		ctx context.Context, f burnin.Medium, size int64, o burnin.DiskOptions, progress func(done, total int64),
	) (burnin.DiskReport, error) {
		report, err := burnin.Disk(ctx, f, size, o, progress)
		if size == bad.Size {
			err = errors.Join(err, errors.New("2 blocks were wrong"))
		}
		return report, err
	}
	out := filepath.Join(t.TempDir(), "fio.json")
	result, err := burninDisk(t.Context(), t, m, burninNode(t, `"agent_burnin_fio_disk_loops": 1,
		"agent_burnin_fio_disk_outputfile": "`+out+`"`))
	if result != nil || typeOf(err) != "CommandExecutionError" ||
		!strings.Contains(err.Error(), bad.Path+": 2 blocks were wrong; tested without errors: "+good.Path) {
		t.Errorf("got %v and %v, want an error of %s and success of %s", result, err, bad.Path, good.Path)
	}
	if text, err := os.ReadFile(out); err != nil || !strings.Contains(string(text), "2 blocks were wrong") {
		t.Errorf("got output file %s and %v, want the error", text, err)
	}
}

// A disk with a member of an array that Ironic created is not tested, and fails the step.
func TestBurninDiskCreated(t *testing.T) {
	member := raidtest.MemberDisk(t, testenv.RAID{Name: "host:data", Level: 1})
	before := content(t, member)
	n := nodeWith(t, `"raid_config": {"logical_disks": [`+
		raidtest.LogicalDisk("1", `"MAX"`, `"volume_name": "data"`)+`]}`)
	result, err := burninDisk(t.Context(), t, onThisMachine(t, member), n)
	if result != nil || typeOf(err) != "CommandExecutionError" ||
		!strings.Contains(err.Error(), member.Path+` is a member of raid1 array "host:data", which Ironic created`) {
		t.Errorf("got %v and %v, want an error that names the disk and the array", result, err)
	}
	if !bytes.Equal(content(t, member), before) {
		t.Error("a member of an array that Ironic created was written to")
	}
}

// cancelling is a tracker that cancels the work at its first progress.
type cancelling struct {
	status.Tracker
	cancel func()
}

func (c cancelling) Set(int64, int64) { c.cancel() }
