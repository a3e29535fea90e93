package cleaning

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"ironroot/agent/config"
	"ironroot/agent/node"
	"ironroot/agent/status"
	"ironroot/internal/test/disktest"
	"ironroot/internal/test/raidtest"
	"ironroot/internal/test/testenv"
	"ironroot/storage/block"
	"ironroot/storage/erase"
	"ironroot/storage/partition"
	"ironroot/storage/sysfs"
)

const diskSize = 24 << 20

func onThisMachine(t *testing.T, disks ...block.Device) *Steps {
	t.Helper()
	m := newMachineOn(sysfs.Root{}, disks...)
	fake(m).unbound = func(context.Context) ([]block.UnboundController, error) { return nil, nil }
	m.o.Config.Update(func(c *config.Config) {
		c.GuardSpecialFilesystems = true
		// For a minute: another process, such as udev, can have a new disk open.
		c.DiskPartitioner.CheckDeviceInterval, c.DiskPartitioner.CheckDeviceMaxRetries = 20*time.Millisecond, 3000
	})
	return m
}

// impatient limits the wait for disks to a second. The test itself keeps one in use.
func impatient(m *Steps) *Steps {
	m.o.Config.Update(func(c *config.Config) { c.DiskPartitioner.CheckDeviceMaxRetries = 50 })
	return m
}

func content(t *testing.T, d block.Device) []byte {
	t.Helper()
	return testenv.Content(t, d.Path)
}

func nodeWith(t *testing.T, fields string) *node.Node {
	t.Helper()
	n, err := node.FromJSON([]byte(`{"uuid": "u", ` + fields + `}`))
	if err != nil {
		t.Fatal(err)
	}
	return n
}

// sameResult compares the result of a step, as it is sent to Ironic, without the evidence.
func sameResult(t *testing.T, got any, want map[string]diskReport) {
	t.Helper()
	var texts [2]any
	for i, value := range []any{want, got} {
		data, err := json.Marshal(value)
		if err != nil {
			t.Fatal(err)
		}
		if err := json.Unmarshal(data, &texts[i]); err != nil {
			t.Fatal(err)
		}
	}
	for _, report := range texts[1].(map[string]any) {
		delete(report.(map[string]any), "evidence")
		delete(report.(map[string]any), "overwritten") // see TestEraseNamesPasses
	}
	if diff := cmp.Diff(texts[0], texts[1]); diff != "" {
		t.Errorf("result differs (-want +got):\n%s", diff)
	}
}

func TestEraseMetadata(t *testing.T) {
	disk := raidtest.PartitionedDisk(t, partition.TypeLinux)
	protected := raidtest.PartitionedDisk(t, partition.TypeLinux)
	before := content(t, protected)
	n := nodeWith(t, `"properties": {"skip_block_devices": [{"serial": "`+protected.Serial+`"}]}`)
	result, err := onThisMachine(t, disk, protected).EraseMetadata(t.Context(), n)
	if err != nil {
		t.Fatal(err)
	}
	sameResult(t, result, map[string]diskReport{
		disk.Path:      {Erased: map[string]erase.Report{disk.Path: {Technique: erase.MetadataOnly}}},
		protected.Path: {Untouched: map[string]string{protected.Path: "named by skip_block_devices"}},
	})
	found, err := block.Probe(t.Context(), disk.Path)
	if err != nil || found.Type != "" {
		t.Errorf("got signature %q and %v, want none", found.Type, err)
	}
	if data := content(t, disk); bytes.Contains(data[:4096], []byte("EFI PART")) ||
		bytes.Contains(data[len(data)-4096:], []byte("EFI PART")) ||
		bytes.Contains(data, []byte("mkfs.fat")) {
		t.Error("the disk still has a partition table or a file system")
	}
	if !bytes.Equal(content(t, protected), before) {
		t.Error("the disk on the skip list was written to")
	}
}

// With disk_erasure_concurrency, that many disks are erased in parallel.
//
// Parity: P3 (in parallel)
func TestEraseDevices(t *testing.T) {
	var disks []block.Device
	want := map[string]diskReport{}
	for range 4 {
		d := raidtest.PartitionedDisk(t, partition.TypeLinux)
		disks = append(disks, d)
		want[d.Path] = diskReport{Erased: map[string]erase.Report{d.Path: {Technique: erase.Overwrite}}}
	}
	n := nodeWith(t, `"driver_internal_info": {"disk_erasure_concurrency": 4, "agent_erase_devices_iterations": 0}`)
	m := onThisMachine(t, disks...)
	var begun atomic.Int32
	all := make(chan struct{})
	fake(m).erase = func(ctx context.Context, d block.Device, o erase.Options) error {
		if int(begun.Add(1)) == len(disks) {
			close(all)
		}
		select {
		case <-all:
		case <-time.After(time.Minute):
			t.Error("the erase of the other disks has not begun")
		}
		return fake(m).thisMachine.Erase(ctx, d, o)
	}
	result, err := m.EraseDevices(t.Context(), n)
	if err != nil {
		t.Fatal(err)
	}
	sameResult(t, result, want)
	for _, d := range disks {
		if !bytes.Equal(content(t, d), make([]byte, diskSize)) {
			t.Errorf("%s still holds data", d.Path)
		}
	}
}

// The result and the log say of which passes an overwrite consisted, and what was read back of the last one. They do
// not after an erase of another kind, or one that failed.
func TestEraseNamesPasses(t *testing.T) {
	for fields, want := range map[string]string{
		`"agent_erase_devices_iterations": 0`: "passes: 1, the last of zeros; read back: ",
		`"agent_erase_devices_iterations": 2, "agent_erase_devices_zeroize": false`: "passes: 2, " +
			"the last of random data; read back: ",
	} {
		disk := raidtest.PartitionedDisk(t, partition.TypeLinux)
		m := onThisMachine(t, disk)
		var log testenv.Log
		m.o.Log = slog.New(slog.NewTextHandler(&log, nil))
		n := nodeWith(t, `"driver_internal_info": {`+fields+`}`)
		result, err := m.EraseDevices(t.Context(), n)
		if err != nil {
			t.Fatal(err)
		}
		report := reports(t, result)[disk.Path]
		want += fmt.Sprintf("%d of %d bytes, ", diskSize, diskSize)
		got := report.overwritten()[disk.Path]
		if !strings.HasPrefix(got, want) || report.Erased[disk.Path].String() != string(erase.Overwrite) ||
			!strings.Contains(log.String(), "method=overwrite duration=") ||
			!strings.Contains(log.String(), fmt.Sprintf("overwritten=%q", got)) {
			t.Errorf("%s: got %+v, want %q in result and log:\n%s", fields, report, want, log.String())
		}

		result, err = m.EraseMetadata(t.Context(), n)
		if err != nil {
			t.Fatal(err)
		}
		if report := reports(t, result)[disk.Path]; len(report.Erased) != 1 || len(report.overwritten()) > 0 {
			t.Errorf("metadata: got %+v, want no overwrite", report)
		}
		failed := errors.New("failed")
		full := fake(m).thisMachine.Erase
		fake(m).erase = func(
			ctx context.Context, d block.Device, o erase.Options,
		) error {
			return errors.Join(full(ctx, d, o), failed)
		}
		var failures testenv.Log
		m.o.Log = slog.New(slog.NewTextHandler(&failures, nil))
		if _, err := m.EraseDevices(t.Context(), n); !errors.Is(err, failed) ||
			strings.Contains(failures.String(), "overwritten=") {
			t.Errorf("got %v, want %v and no overwrite in the log:\n%s", err, failed, failures.String())
		}
	}
}

// The result has the method of each drive, with the reason of an overwrite. A drive that keeps its password fails the
// step, and the others are erased.
//
// Parity: P1 (results)
func TestEraseATA(t *testing.T) {
	const reason = "overwrite; secure erase failed: ATA security is frozen"
	locked := fmt.Errorf("erase: %w of 32 zero bytes: hdparm --security-disable NULL", erase.ErrLocked)
	var disks []block.Device
	for range 3 {
		disks = append(disks, raidtest.PartitionedDisk(t, partition.TypeLinux))
	}
	n := nodeWith(t, `"driver_internal_info": {"agent_continue_if_ata_erase_failed": true}`)
	run := func(disks ...block.Device) (any, error) {
		m := onThisMachine(t, disks...)
		fake(m).erase = func(_ context.Context, d block.Device, o erase.Options) error {
			if !o.ATA || !o.ContinueOnFailure {
				t.Errorf("got options %+v, want ATA and ContinueOnFailure", o)
			}
			switch d.Path {
			case disks[0].Path:
				o.Recorder.Erased(erase.ATAEnhanced)
				return nil
			case disks[1].Path:
				o.Recorder.Erased(reason)
				return nil
			}
			return locked
		}
		return m.EraseDevices(t.Context(), n)
	}
	result, err := run(disks[:2]...)
	if err != nil {
		t.Fatal(err)
	}
	sameResult(t, result, map[string]diskReport{
		disks[0].Path: {Erased: map[string]erase.Report{disks[0].Path: {Technique: "ata-secure-erase-enhanced"}}},
		disks[1].Path: {Erased: map[string]erase.Report{disks[1].Path: {Technique: reason}}},
	})
	result, err = run(disks...)
	if typeOf(err) != "BlockDeviceEraseError" || !errors.Is(err, erase.ErrLocked) || result != nil ||
		!strings.Contains(err.Error(), disks[0].Path+" (ata-secure-erase-enhanced)") ||
		!strings.Contains(err.Error(), disks[1].Path+" ("+reason+")") ||
		!strings.Contains(err.Error(), disks[2].Path+": "+locked.Error()) {
		t.Errorf("got %v, %v, want a BlockDeviceEraseError with two erased disks, and how to unlock the third",
			result, err)
	}
}

// Each step makes locked disks readable before it reads one, unless ATA secure erase is switched off. A disk that stays
// locked fails the step, and the others are erased.
//
// Parity: P1 (unlocking)
func TestEraseRecovers(t *testing.T) {
	for name, step := range map[string]func(*Steps, context.Context, *node.Node) (any, error){
		"erase_devices": (*Steps).EraseDevices, "erase_devices_metadata": (*Steps).EraseMetadata,
		"erase_devices_express": (*Steps).EraseExpress,
	} {
		disk := raidtest.PartitionedDisk(t, partition.TypeLinux)
		locked, skipped := raidtest.PartitionedDisk(t, partition.TypeLinux), block.Device{
			Name: "sdz", Path: "/dev/sdz", Type: "disk", Serial: "z", Serials: []string{"z"},
		}
		before, other := content(t, locked), content(t, disk)
		for _, on := range []bool{true, false} {
			n := nodeWith(t, fmt.Sprintf(`"properties": {"skip_block_devices": [{"name": "/dev/sdz"}]},
				"driver_internal_info": {
					"agent_enable_ata_secure_erase": %t, "agent_erase_devices_iterations": 0
				}`, on))
			m := onThisMachine(t, disk, locked, skipped)
			var mu sync.Mutex
			var recovered []string
			both := make(chan struct{})
			fake(m).recover = func(_ context.Context, d block.Device, _ *erase.Recorder) error {
				mu.Lock()
				recovered = append(recovered, d.Path)
				if len(recovered) == 2 {
					close(both)
				}
				mu.Unlock()
				<-both // the disks are recovered concurrently
				if d.Path == locked.Path {
					return erase.ErrLocked
				}
				return nil
			}
			_, err := step(m, t.Context(), n)
			want := []string{disk.Path, locked.Path}
			slices.Sort(want)
			slices.Sort(recovered)
			if !on {
				want = nil
			}
			if diff := cmp.Diff(want, recovered); diff != "" {
				t.Errorf("%s, ATA secure erase %v: -want +got:\n%s", name, on, diff)
			}
			if errors.Is(err, erase.ErrLocked) != on || (err != nil) != on {
				t.Errorf("%s, ATA secure erase %v: got %v", name, on, err)
			}
			if same := bytes.Equal(content(t, locked), before); same != on {
				t.Errorf("%s, ATA secure erase %v: locked disk left alone %v", name, on, same)
			}
			if bytes.Equal(content(t, disk)[:512], other[:512]) {
				t.Errorf("%s, ATA secure erase %v: the other disk was not erased", name, on)
			}
		}
	}
}

// Disks of each kind are recovered unless secure erase is switched off for that kind.
func TestEraseRecoversKinds(t *testing.T) {
	disks := []block.Device{{Name: "sda", Path: "/dev/sda"}, {Name: "nvme0n1", Path: "/dev/nvme0n1"}}
	for _, c := range []struct {
		flags eraseFlags
		want  []string
	}{
		{eraseFlags{}, nil},
		{eraseFlags{ata: true}, []string{"/dev/sda"}},
		{eraseFlags{nvme: true}, []string{"/dev/nvme0n1"}},
		{eraseFlags{ata: true, nvme: true}, []string{"/dev/nvme0n1", "/dev/sda"}},
	} {
		m := newMachine(t)
		var mu sync.Mutex
		var recovered []string
		fake(m).recover = func(_ context.Context, d block.Device, _ *erase.Recorder) error {
			mu.Lock()
			defer mu.Unlock()
			recovered = append(recovered, d.Path)
			return nil
		}
		r := &diskRun{m: m, flags: c.flags}
		if usable := r.recoverDisks(t.Context(), disks); len(usable) != len(disks) {
			t.Errorf("%+v: got %v, want all disks", c.flags, usable)
		}
		slices.Sort(recovered)
		if diff := cmp.Diff(c.want, recovered); diff != "" {
			t.Errorf("%+v: -want +got:\n%s", c.flags, diff)
		}
	}
}

// The log names the method of a sanitize that has started, and how long the drive says it takes.
func TestEraseLogsSanitize(t *testing.T) {
	disk := block.Device{Name: "nvme0n1", Path: "/dev/nvme0n1"}
	for estimate, want := range map[time.Duration]string{
		time.Hour: "msg=\"sanitize started\" device=/dev/nvme0n1 method=nvme-sanitize-block left=1h0m0s\n",
		0:         "msg=\"sanitize started\" device=/dev/nvme0n1 method=nvme-sanitize-block\n",
	} {
		m := newMachine(t)
		var log strings.Builder
		m.o.Log = slog.New(slog.NewTextHandler(&log, nil))
		fake(m).erase = func(_ context.Context, _ block.Device, o erase.Options) error {
			o.Recorder.Observer.Observe(erase.Progress{
				Phase: erase.SanitizeStarted, Technique: erase.NVMeSanitizeBlock, Estimate: estimate,
			})
			return nil
		}
		r := &diskRun{m: m}
		if err := r.eraseFully(t.Context(), disk, nil, &erase.Recorder{}); err != nil {
			t.Error(err)
		}
		if !strings.HasSuffix(log.String(), want) {
			t.Errorf("got log %s, want %s at its end", &log, want)
		}
	}
}

// A disk is checked for shared file systems after its recovery made it readable.
func TestEraseGuardsRecovered(t *testing.T) {
	const vmfs = "AA31E02A-400F-11DB-9590-000C2911D1B8"
	disk, shared := raidtest.PartitionedDisk(t, partition.TypeLinux), content(t, raidtest.PartitionedDisk(t, vmfs))
	m := onThisMachine(t, disk)
	fake(m).recover = func(_ context.Context, d block.Device, _ *erase.Recorder) error {
		return os.WriteFile(d.Path, shared, 0)
	}
	_, err := m.EraseMetadata(t.Context(), nodeWith(t, `"properties": {}`))
	if typeOf(err) != "ProtectedDeviceError" {
		t.Errorf("got %v, want a ProtectedDeviceError", err)
	}
	if !bytes.Equal(content(t, disk), shared) {
		t.Error("the shared file system was changed")
	}
}

// recordedTracker records the progress that it shows.
type recordedTracker struct {
	status.Tracker
	shown *[][2]int64
}

func (r recordedTracker) Set(done, total int64) {
	*r.shown = append(*r.shown, [2]int64{done, total})
	r.Tracker.Set(done, total)
}

// The status shows a disk that is being recovered only while it sanitizes itself.
func TestEraseRecoverProgress(t *testing.T) {
	busy, idle := raidtest.PartitionedDisk(t, partition.TypeLinux), raidtest.PartitionedDisk(t, partition.TypeLinux)
	m := onThisMachine(t, busy, idle)
	board := status.NewBoard("1", nil)
	var shown [][2]int64
	m.o.Board = trackFunc(func(what, device string) status.Tracker {
		return recordedTracker{board.Track(m.o.Log, what, device), &shown}
	})
	idling, checked := make(chan struct{}), make(chan struct{})
	fake(m).recover = func(_ context.Context, d block.Device, record *erase.Recorder) error {
		if d.Path != busy.Path {
			close(idling)
			<-checked
			return nil
		}
		defer close(checked)
		<-idling
		if work := board.State().Work; len(work) > 0 {
			t.Errorf("got work %+v before the first progress, want none", work)
		}
		record.Observer.Observe(erase.Progress{Phase: erase.Sanitizing, Total: 100})
		work := board.State().Work
		if len(work) != 1 || work[0].Device != busy.Path || work[0].What != "waiting for disk to sanitize itself" {
			t.Errorf("got work %+v, want that of %s", work, busy.Path)
		}
		record.Observer.Observe(erase.Progress{Phase: erase.Sanitizing, Done: 50, Total: 100})
		if diff := cmp.Diff([][2]int64{{0, 100}, {50, 100}}, shown); diff != "" {
			t.Errorf("progress: -want +got:\n%s", diff)
		}
		return nil
	}
	if _, err := m.EraseMetadata(t.Context(), nodeWith(t, `"properties": {}`)); err != nil {
		t.Error(err)
	}
	if work := board.State().Work; len(work) > 0 {
		t.Errorf("got work %+v afterwards, want none", work)
	}
}

// onMessage calls a function before a message is logged.
type onMessage struct {
	slog.Handler
	message string
	call    func()
}

func (h onMessage) Enabled(context.Context, slog.Level) bool { return true }

func (h onMessage) Handle(_ context.Context, r slog.Record) error {
	if r.Message == h.message {
		h.call()
	}
	return nil
}

// The erase of metadata waits until the disk has no holder, limited by the options of disk_partitioner.
//
// Parity: P4 (options)
func TestEraseMetadataWaits(t *testing.T) {
	disk := raidtest.PartitionedDisk(t, partition.TypeLinux)
	holder, err := os.Open(disk.Path)
	if err != nil {
		t.Fatal(err)
	}
	m := onThisMachine(t, disk)
	m.o.Config.Update(func(c *config.Config) {
		c.DiskPartitioner.CheckDeviceInterval, c.DiskPartitioner.CheckDeviceMaxRetries = time.Millisecond, 1<<20
	})
	m.o.Log = slog.New(onMessage{slog.DiscardHandler, "erasing metadata", func() {
		time.AfterFunc(100*time.Millisecond, func() { _ = holder.Close() }) // nothing was written
	}})
	result, err := m.EraseMetadata(t.Context(), nil)
	if err != nil {
		t.Fatal(err)
	}
	sameResult(t, result,
		map[string]diskReport{disk.Path: {Erased: map[string]erase.Report{disk.Path: {Technique: erase.MetadataOnly}}}})
}

// The metadata of a disk that cannot be formatted are erased: its name is not the name of an NVMe namespace.
func TestExpressFallsBack(t *testing.T) {
	disk := raidtest.PartitionedDisk(t, partition.TypeLinux)
	disk.Transport = "nvme"
	middle := content(t, disk)[diskSize/2:][:mib]
	for i := range middle {
		middle[i] = 'x'
	}
	f, err := os.OpenFile(disk.Path, os.O_WRONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := f.WriteAt(middle, diskSize/2); err != nil {
		t.Fatal(err)
	}
	if err := f.Close(); err != nil {
		t.Fatal(err)
	}
	result, err := onThisMachine(t, disk).EraseExpress(t.Context(), nil)
	if err != nil {
		t.Fatal(err)
	}
	sameResult(t, result,
		map[string]diskReport{disk.Path: {Erased: map[string]erase.Report{disk.Path: {Technique: erase.MetadataOnly}}}})
	if table, err := partition.Read(t.Context(), disk.Path); !errors.Is(err, partition.ErrNoTable) {
		t.Errorf("got table %+v and %v, want none", table, err)
	}
	if !bytes.Equal(content(t, disk)[diskSize/2:][:mib], middle) {
		t.Error("the content in the middle of the disk was erased")
	}
}

// No step erases the disks of the skip list.
func TestEraseLeavesSkippedDisks(t *testing.T) {
	disk := raidtest.PartitionedDisk(t, partition.TypeLinux)
	protected := raidtest.PartitionedDisk(t, partition.TypeLinux)
	before := content(t, protected)
	n := nodeWith(t, `"driver_internal_info": {"agent_erase_devices_iterations": 0},
		"properties": {"skip_block_devices": [{"serial": "`+protected.Serial+`"}, {"name": "/dev/not-there"}]}`)
	m := onThisMachine(t, disk, protected)
	for name, step := range map[string]stepFunc{
		"erase_devices": m.EraseDevices, "erase_devices_metadata": m.EraseMetadata,
		"erase_devices_express": m.EraseExpress,
	} {
		if _, err := step(t.Context(), n); err != nil {
			t.Errorf("%s: %v", name, err)
		}
		if !bytes.Equal(content(t, protected), before) {
			t.Errorf("%s wrote to the disk on the skip list", name)
		}
	}
	if !bytes.Equal(content(t, disk), make([]byte, diskSize)) {
		t.Error("the other disk still holds data")
	}
}

// The guard checks all disks before the first one is written.
func TestEraseRefusesSharedFileSystems(t *testing.T) {
	const vmfs = "AA31E02A-400F-11DB-9590-000C2911D1B8"
	disk, shared := raidtest.PartitionedDisk(t, partition.TypeLinux), raidtest.PartitionedDisk(t, vmfs)
	before, beforeShared := content(t, disk), content(t, shared)
	m := onThisMachine(t, disk, shared)
	for name, step := range map[string]stepFunc{
		"erase_devices": m.EraseDevices, "erase_devices_metadata": m.EraseMetadata,
		"erase_devices_express": m.EraseExpress,
	} {
		_, err := step(t.Context(), nil)
		if typeOf(err) != "ProtectedDeviceError" || !strings.Contains(err.Error(), shared.Path) {
			t.Errorf("%s: got %v, want a ProtectedDeviceError that names %s", name, err, shared.Path)
		}
	}
	if !bytes.Equal(content(t, disk), before) || !bytes.Equal(content(t, shared), beforeShared) {
		t.Error("a disk was written to before the guard had seen them all")
	}
	n := nodeWith(t, `"driver_internal_info": {"wipe_special_filesystems": false}`)
	if _, err := m.EraseExpress(t.Context(), n); err != nil {
		t.Errorf("guard switched off: %v", err)
	}
}

// A disk that fails for any reason does not prevent the erase of the others. The step fails and names the disks that
// failed.
func TestEraseCollectsErrors(t *testing.T) {
	disk, closed := raidtest.PartitionedDisk(t, partition.TypeLinux), raidtest.PartitionedDisk(t, partition.TypeLinux)
	holder, err := os.Open(closed.Path)
	if err != nil {
		t.Fatal(err)
	}
	defer holder.Close() //nolint:errcheck // only held
	gone := block.Device{Name: "gone", Path: "/dev/gone"}
	for name, step := range map[string]func(*Steps) stepFunc{
		"erase_devices":          func(m *Steps) stepFunc { return m.EraseDevices },
		"erase_devices_metadata": func(m *Steps) stepFunc { return m.EraseMetadata },
		"erase_devices_express":  func(m *Steps) stepFunc { return m.EraseExpress },
	} {
		for _, guard := range []bool{true, false} {
			testenv.GPT(t, disk.Path)
			m := impatient(onThisMachine(t))
			m.o.Config.Update(func(c *config.Config) { c.GuardSpecialFilesystems = guard })
			m.o.Disks = disktest.Lister(func(context.Context) ([]block.Device, error) {
				return []block.Device{gone, disk, closed}, fmt.Errorf("%w: /dev/mute", block.ErrUnreadable)
			})
			_, err := step(m)(t.Context(), nil)
			if typeOf(err) != "BlockDeviceEraseError" {
				t.Errorf("%s: got %v, want a BlockDeviceEraseError", name, err)
			}
			erased, failed, _ := strings.Cut(fmt.Sprint(err), "; not erased: ")
			if !strings.Contains(erased, "erased: "+disk.Path+" (") || strings.Contains(erased, ",") {
				t.Errorf("%s: got %v, want an error that lists %s alone as erased", name, err, disk.Path)
			}
			for _, want := range []string{gone.Path, closed.Path, "/dev/mute", "process " + strconv.Itoa(os.Getpid())} {
				if !strings.Contains(failed, want) {
					t.Errorf("%s: got %v, want an error that names %s", name, err, want)
				}
			}
			if table, err := partition.Read(t.Context(), disk.Path); !errors.Is(err, partition.ErrNoTable) {
				t.Errorf("%s: the healthy disk has table %+v and %v, want none", name, table, err)
			}
		}
	}
}

// A disk that the kernel cannot use cannot be erased, and is not in the list of disks.
func TestEraseNamesUnusableDisks(t *testing.T) {
	for name, want := range map[string]string{
		"nvme0n2": "/dev/nvme0n2: the kernel can neither read nor write this NVMe namespace",
		"sda":     "/dev/sda: the kernel reports no capacity",
		"vda":     "/dev/vda: the kernel reports no capacity",
	} {
		m := newMachine(t)
		var log strings.Builder
		m.o.Log = slog.New(slog.NewTextHandler(&log, nil))
		raidtest.ListDisks(t, m.o.System, "0", name)
		for step, run := range erasing(m) {
			if _, err := run(t.Context(), nil); typeOf(err) != "BlockDeviceEraseError" ||
				!strings.Contains(err.Error(), want) {
				t.Errorf("%s: got %v, want a BlockDeviceEraseError with %q", step, err, want)
			}
			skip := nodeWith(t, `"properties": {"skip_block_devices": [{"name": "/dev/`+name+`"}]}`)
			log.Reset()
			result, err := run(t.Context(), skip)
			if err != nil {
				t.Errorf("%s: %s on the skip list: got %v, want no error", step, name, err)
			}
			sameResult(t, result, map[string]diskReport{
				"/dev/" + name: {Untouched: map[string]string{"/dev/" + name: "named by skip_block_devices"}},
			})
			if got := strings.Count(log.String(), `msg="device left untouched" device=/dev/`+name); got != 1 {
				t.Errorf("%s: got %d messages that %s is left untouched, want 1:\n%s", step, got, name, &log)
			}
		}
	}
}

// A namespace that cannot be described is an error of this disk alone, and one error: several lists contain it. The
// other disks are erased.
func TestEraseUndescribedNamespace(t *testing.T) {
	disk := raidtest.PartitionedDisk(t, partition.TypeLinux)
	m := newMachine(t)
	var log strings.Builder
	m.o.Log = slog.New(slog.NewTextHandler(&log, nil))
	raidtest.ListDisks(t, m.o.System, "many", "nvme0n1")
	raidtest.ListDisks(t, m.o.System, strconv.Itoa(diskSize/512), disk.Name)
	if err := os.WriteFile(m.o.System.Sys("class/block", disk.Name, "ro"), []byte("0\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, inList := range []bool{false, true} {
		m.o.Disks = disktest.Lister(func(ctx context.Context) ([]block.Device, error) {
			var err error
			if inList {
				_, err = block.Disks(ctx, m.o.System)
			}
			return []block.Device{disk}, err
		})
		testenv.GPT(t, disk.Path)
		log.Reset()
		_, err := m.EraseMetadata(t.Context(), nil)
		got := strings.Count(log.String(), `"disk not erased"`)
		if got != 1 || !strings.Contains(log.String(), "nvme0n1") {
			t.Errorf("got %d errors in log %s, want one of nvme0n1", got, &log)
		}
		erased, failed, _ := strings.Cut(errorText(err), "; not erased: ")
		if typeOf(err) != "BlockDeviceEraseError" || !strings.Contains(erased, disk.Path) ||
			strings.Count(failed, "nvme0n1") != 1 {
			t.Errorf("got %v, want one error of nvme0n1 and %s erased", err, disk.Path)
		}
		run := startErase(t, m)
		if len(run.arrays.unread) != 1 || !errors.Is(run.arrays.unread[0], block.ErrUnreadable) {
			t.Errorf("got unread disks %v, want nvme0n1", run.arrays.unread)
		}
	}
}

// A hint of skip_block_devices can match all disks but not one that the kernel does not use. The step fails.
func TestEraseUnusableDiskWithoutNumber(t *testing.T) {
	for name, file := range map[string]string{"nvme0n2": "device/serial", "vda": "serial"} {
		m := newMachine(t, block.Device{Path: "/dev/sda", Serial: "50", Serials: []string{"50"}})
		raidtest.ListDisks(t, m.o.System, "0", name)
		serial := m.o.System.Sys("class/block", name, file)
		if err := os.MkdirAll(filepath.Dir(serial), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(serial, []byte("S3X9\n"), 0o600); err != nil {
			t.Fatal(err)
		}
		n := nodeWith(t, `"properties": {"skip_block_devices": [{"serial": ">= 100"}]}`)
		_, err := m.startDiskRun(t.Context(), n, "disk not erased", fullErase)
		if typeOf(err) != "" || !strings.Contains(errorText(err), "skip_block_devices") ||
			!strings.Contains(errorText(err), "S3X9") {
			t.Errorf("%s: got %v, want an error without a type that names the entry of skip_block_devices and the "+
				"serial number", name, err)
		}
	}
}

func TestErasePstore(t *testing.T) {
	m := newMachine(t)
	dump := m.o.System.Sys("fs/pstore/dmesg-erst-1")
	for path, text := range map[string]string{
		dump: "panic", m.o.System.Sys("firmware/efi/efivars/Boot0001"): "",
		m.o.System.Proc("mounts"): "pstore /sys/fs/pstore pstore rw 0 0\n" +
			"efivarfs /sys/firmware/efi/efivars efivarfs rw 0 0\n",
	} {
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if result, err := m.ErasePstore(t.Context()); result != nil || err != nil {
		t.Fatalf("got %v and %v, want null", result, err)
	}
	if _, err := os.Stat(dump); !os.IsNotExist(err) {
		t.Errorf("the dump is still there: %v", err)
	}
}

// On a machine that was booted by BIOS, an earlier boot by UEFI can have left crash logs in variables that the kernel
// cannot access. The step's result names this, unless the firmware does not support UEFI.
func TestErasePstoreByBIOS(t *testing.T) {
	table := func(extension byte) string {
		bios := append([]byte{0, 20}, make([]byte, 17)...)
		return string(append(bios, extension, 0, 0, 127, 4, 0, 0, 0, 0))
	}
	smbios := func(tables string) map[string]string {
		return map[string]string{
			"firmware/dmi/tables/smbios_entry_point": "_SM3_" + strings.Repeat("\x00", 19),
			"firmware/dmi/tables/DMI":                tables,
		}
	}
	for name, c := range map[string]struct {
		files map[string]string // below /sys
		want  any
		fails bool
	}{
		"no SMBIOS":      {want: variablesNotSearched},
		"no entry point": {files: map[string]string{"firmware/dmi/tables/DMI": table(0)}, want: variablesNotSearched},
		"no tables":      {files: smbios(""), want: variablesNotSearched},
		"not parsed":     {files: smbios(table(0)[:23]), want: variablesNotSearched},
		"UEFI":           {files: smbios(table(1 << 3)), want: variablesNotSearched},
		"BIOS only":      {files: smbios(table(0))},
		"error":          {files: map[string]string{"fs/pstore/dmesg": ""}, fails: true}, // it is not mounted
	} {
		m := newMachine(t)
		var log strings.Builder
		m.o.Log = slog.New(slog.NewTextHandler(&log, nil))
		files := map[string]string{m.o.System.Proc("mounts"): ""}
		for file, text := range c.files {
			files[m.o.System.Sys(file)] = text
		}
		for path, text := range files {
			if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
				t.Fatal(err)
			}
			if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
				t.Fatal(err)
			}
		}
		result, err := m.ErasePstore(t.Context())
		if result != c.want || (err != nil) != c.fails {
			t.Errorf("%s: got %v and %v, want %v and an error: %v", name, result, err, c.want, c.fails)
		}
		const warning = `level=WARN msg="UEFI variables not searched for crash logs" reason="the machine was ` +
			`booted by BIOS"`
		if got := strings.Contains(log.String(), warning); got != (c.want != nil) {
			t.Errorf("%s: got log %q, want a warning: %v", name, &log, c.want != nil)
		}
	}
}

// The error of a step lists what was erased, up to a limit, before the disks that failed.
func TestEraseErrorText(t *testing.T) {
	disks := func(count int, method erase.Technique) []block.Device {
		var list []block.Device
		for i := range count {
			list = append(list, block.Device{Path: fmt.Sprintf("/dev/disk%04d", i), Model: string(method)})
		}
		return list
	}
	broken := block.Device{Path: "/dev/broken"}
	for _, tt := range []struct {
		name  string
		disks []block.Device
		want  string
	}{
		{"none", nil, "erased: none; not erased: /dev/broken: "},
		{"one", disks(1, erase.Overwrite), "erased: /dev/disk0000 (overwrite); not erased: /dev/broken: "},
		{
			"two", disks(2, erase.NVMeUser),
			"erased: /dev/disk0000 (nvme-format-user), /dev/disk0001 (nvme-format-user); not erased: /dev/broken: ",
		},
		{"many", disks(1000, erase.Overwrite), " /dev/disk0036 (overwrite), and 963 more; not erased: /dev/broken: "},
		{
			"a long method", disks(3, erase.Technique(strings.Repeat("long", 500))),
			"erased: and 3 more; not erased: /dev/broken: ",
		},
	} {
		m := newMachine(t)
		run, err := m.startDiskRun(t.Context(), nil, "disk not erased", fullErase)
		if err != nil {
			t.Fatal(err)
		}
		for _, d := range append(tt.disks, broken) {
			run.do(t.Context(), d, func(context.Context, block.Device) (diskReport, error) {
				if d.Path == broken.Path {
					return diskReport{}, errors.New("no answer")
				}
				return diskReport{Erased: map[string]erase.Report{d.Path: {Technique: erase.Technique(d.Model)}}}, nil
			})
		}
		_, err = run.finish()
		if typeOf(err) != "BlockDeviceEraseError" || !strings.Contains(fmt.Sprint(err), tt.want+"no answer") ||
			len(fmt.Sprint(err)) > maxErasedText+200 {
			t.Errorf("%s: got %v, want a BlockDeviceEraseError with %q", tt.name, err, tt.want)
		}
	}
}

// A disk of which one device was erased and one was not is in both lists.
func TestEraseErrorTextOfPart(t *testing.T) {
	m := newMachine(t)
	run, err := m.startDiskRun(t.Context(), nil, "disk not erased", fullErase)
	if err != nil {
		t.Fatal(err)
	}
	run.do(t.Context(), block.Device{Path: "/dev/sda"}, func(context.Context, block.Device) (diskReport, error) {
		return diskReport{Erased: map[string]erase.Report{"/dev/sda2": {Technique: erase.Overwrite}}},
			errors.New("erase /dev/sda3: no answer")
	})
	const want = "erased: /dev/sda2 (overwrite); not erased: /dev/sda: erase /dev/sda3: no answer"
	if _, err := run.finish(); err == nil || !strings.Contains(err.Error(), want) {
		t.Errorf("got %v, want %q in it", err, want)
	}
}

// A disk whose serial number or WWN cannot be read is not erased if the skip list has such an entry: the entry may
// name this disk. A disk without one is erased.
func TestEraseUnidentifiedDisk(t *testing.T) {
	unread := raidtest.MemberDisk(t, testenv.RAID{Name: "tenant", Level: 1})
	unread.Serial, unread.Serials, unread.Unread = "", nil, sysfs.ErrHangs
	before := content(t, unread)
	n := nodeWith(t, `"properties": {"skip_block_devices": [{"serial": "S1"}]}`)
	for step := range erasing(newMachine(t)) {
		without := raidtest.MemberDisk(t, testenv.RAID{Name: "tenant", Level: 1})
		without.Serial, without.Serials = "", nil
		var log strings.Builder
		m := onThisMachine(t, unread, without)
		m.o.Log = slog.New(slog.NewTextHandler(&log, nil))
		_, err := erasing(m)[step](t.Context(), n)
		erased, failed, _ := strings.Cut(errorText(err), "; not erased: ")
		want := unread.Path + ": disk cannot be described: entry 1 of skip_block_devices may name it: " +
			sysfs.ErrHangs.Error()
		if typeOf(err) != "BlockDeviceEraseError" || failed != want || !strings.Contains(erased, without.Path) {
			t.Errorf("%s: got %v, want a BlockDeviceEraseError with %q, and %s erased", step, err, want, without.Path)
		}
		if !bytes.Equal(content(t, unread), before) {
			t.Errorf("%s wrote to the disk", step)
		}
		if !strings.Contains(log.String(), `msg="no disk matches an entry`) {
			t.Errorf("%s: got log %s, want a warning of the entry", step, &log)
		}
	}
	matched := nodeWith(t, `"properties": {"skip_block_devices": [{"serial": "S1"}, {"name": "`+unread.Path+`"}]}`)
	if _, err := onThisMachine(t, unread).EraseDevices(t.Context(), matched); err != nil {
		t.Errorf("named by its path: got %v, want no error", err)
	}
	if _, err := onThisMachine(t, unread).EraseMetadata(t.Context(),
		nodeWith(t, `"properties": {}`)); err != nil {
		t.Errorf("without a skip list: got %v, want no error", err)
	}
}
