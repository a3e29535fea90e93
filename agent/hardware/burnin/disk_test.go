package burnin

import (
	"context"
	"crypto/aes"
	"crypto/cipher"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
)

// memoryDisk is a disk in memory with faults.
type memoryDisk struct {
	mu      sync.Mutex
	data    []byte
	onWrite func(p []byte, at int64) (to int64, err error) // nil means no fault; a negative position drops the write
	onRead  func(p []byte, at int64) error                 // changes what was read
	syncErr error
	syncs   int
}

func (d *memoryDisk) WriteAt(p []byte, at int64) (int, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.onWrite != nil {
		to, err := d.onWrite(p, at)
		if err != nil || to < 0 {
			return len(p), err
		}
		at = to
	}
	copy(d.data[at:], p)
	return len(p), nil
}

func (d *memoryDisk) ReadAt(p []byte, at int64) (int, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	copy(p, d.data[at:])
	if d.onRead != nil {
		return len(p), d.onRead(p, at)
	}
	return len(p), nil
}

func (d *memoryDisk) Sync() error {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.syncs++
	return d.syncErr
}

func noProgress(int64, int64) {}

func TestDisk(t *testing.T) {
	for _, size := range []int{3 << 20, requestBytes + 512, blockBytes, 512} {
		d := &memoryDisk{data: make([]byte, size)}
		var mu sync.Mutex
		last, total := int64(0), int64(0)
		report, err := Disk(t.Context(), d, int64(size), DiskOptions{Loops: 2}, func(n, of int64) {
			mu.Lock()
			last, total = max(last, n), of
			mu.Unlock()
		})
		want := DiskReport{Size: int64(size), Written: 2 * int64(size), Verified: 2 * int64(size)}
		ignored := cmp.Options{cmpopts.IgnoreUnexported(want), cmpopts.IgnoreFields(want, "Seconds")}
		if diff := cmp.Diff(want, report, ignored); diff != "" || err != nil {
			t.Errorf("%d bytes: %v (-want +got):\n%s", size, err, diff)
		}
		if last != 4*int64(size) || total != last || d.syncs != 2 {
			t.Errorf("%d bytes: got progress %d of %d and %d syncs, want %d and 2", size, last, total, d.syncs, 4*size)
		}
	}
	if _, err := Disk(t.Context(), &memoryDisk{}, 31, DiskOptions{Loops: 1}, noProgress); err == nil {
		t.Error("31 bytes: got no error")
	}
}

// Blocks that differ are errors that say how.
func TestDiskWrongData(t *testing.T) {
	const size, bad = 2 << 20, 3*requestBytes + 5*blockBytes
	var writes int
	for name, test := range map[string]struct {
		onWrite func(p []byte, at int64) (int64, error)
		onRead  func(p []byte, at int64) error
		want    string
	}{
		"flipped bit": {nil, func(p []byte, at int64) error {
			if at == 3*requestBytes {
				p[5*blockBytes+4000] ^= 1
			}
			return nil
		}, fmt.Sprintf("1 blocks of 4096 bytes were wrong in pass 1: byte %d: wrong checksum", bad)},
		"flipped bit in the header": {nil, func(p []byte, at int64) error {
			if at == 3*requestBytes {
				p[5*blockBytes+offsetPass] ^= 1
			}
			return nil
		}, fmt.Sprintf("byte %d: wrong checksum", bad)},
		"nothing is read": {nil, func(p []byte, _ int64) error { clear(p); return nil }, "and 496 more"},
		"write is lost in the second pass": {func(_ []byte, at int64) (int64, error) {
			if at == requestBytes {
				if writes++; writes == 2 {
					return -1, nil
				}
			}
			return at, nil
		}, nil, fmt.Sprintf("64 blocks of 4096 bytes were wrong in pass 2: byte %d: data of pass 1", requestBytes)},
		"write goes elsewhere": {func(_ []byte, at int64) (int64, error) {
			if at == requestBytes {
				return 2 * requestBytes, nil
			}
			return at, nil
		}, nil, "wrong in pass 1: "},
	} {
		t.Run(name, func(t *testing.T) {
			writes = 0
			d := &memoryDisk{data: make([]byte, size), onWrite: test.onWrite, onRead: test.onRead}
			report, err := Disk(t.Context(), d, size, DiskOptions{Loops: 3}, noProgress)
			if err == nil || !strings.Contains(err.Error(), test.want) {
				t.Errorf("got error %v, want %q", err, test.want)
			}
			if report.Verified%size != 0 || report.Verified == 0 {
				t.Errorf("got %d verified bytes, want whole passes", report.Verified)
			}
		})
	}
}

// A block of an earlier test, and one of another place, are not taken for blocks of the test.
func TestDiskDifference(t *testing.T) {
	old := &memoryDisk{data: make([]byte, 1<<20)}
	if _, err := Disk(t.Context(), old, 1<<20, DiskOptions{Loops: 1}, noProgress); err != nil {
		t.Fatal(err)
	}
	d := &memoryDisk{data: old.data, onWrite: func([]byte, int64) (int64, error) { return -1, nil }}
	_, err := Disk(t.Context(), d, 1<<20, DiskOptions{Loops: 1}, noProgress)
	if err == nil || !strings.Contains(err.Error(), ": data of another test") ||
		!strings.HasPrefix(err.Error(), "256 blocks") {
		t.Errorf("got error %v, want one about data of another test", err)
	}
	swapped := &memoryDisk{data: make([]byte, 1<<20)}
	swapped.onRead = func(p []byte, at int64) error {
		if at == 0 {
			copy(p[blockBytes:2*blockBytes], p[7*blockBytes:])
		}
		return nil
	}
	_, err = Disk(t.Context(), swapped, 1<<20, DiskOptions{Loops: 1}, noProgress)
	if want := "byte 4096: data that was written to byte 28672"; err == nil || !strings.Contains(err.Error(), want) {
		t.Errorf("got error %v, want %q", err, want)
	}
}

func TestDiskErrors(t *testing.T) {
	broken := errors.New("input/output error")
	fail := func(_ []byte, at int64) error {
		if at == 2*requestBytes {
			return broken
		}
		return nil
	}
	const size = 2 << 20
	for name, test := range map[string]struct {
		d    *memoryDisk
		want string
		// The requests before the one that failed were successful, and some of those behind it may be.
		minWritten, maxWritten, maxVerified int64
	}{
		"read": {
			&memoryDisk{onRead: fail}, "read 262144 bytes at byte 524288: input/output error",
			size, size, size - requestBytes,
		},
		"write": {
			&memoryDisk{onWrite: func(p []byte, at int64) (int64, error) { return at, fail(p, at) }},
			"write 262144 bytes at byte 524288: input/output error", 0, size - requestBytes, 0,
		},
		"sync": {&memoryDisk{syncErr: broken}, "input/output error", size, size, 0},
		"all reads": {
			&memoryDisk{onRead: func([]byte, int64) error { return broken }}, "input/output error", size, size, 0,
		},
	} {
		test.d.data = make([]byte, size)
		report, err := Disk(t.Context(), test.d, size, DiskOptions{Loops: 4}, noProgress)
		if err == nil || !strings.HasSuffix(err.Error(), test.want) || !errors.Is(err, broken) {
			t.Errorf("%s: got error %v, want %q", name, err, test.want)
		}
		if report.Written < test.minWritten || report.Written > test.maxWritten ||
			report.Verified > test.maxVerified {
			t.Errorf("%s: got %d bytes written and %d verified, want %d to %d and at most %d", name, report.Written,
				report.Verified, test.minWritten, test.maxWritten, test.maxVerified)
		}
	}
	ctx, cancel := context.WithCancelCause(t.Context())
	aborted := errors.New("aborted")
	d := &memoryDisk{data: make([]byte, 8<<20), onRead: func([]byte, int64) error { cancel(aborted); return nil }}
	if report, err := Disk(ctx, d, 8<<20, DiskOptions{Loops: 4}, noProgress); !errors.Is(err, aborted) ||
		report.Verified > 4*requestBytes {
		t.Errorf("got %+v and %v, want %v", report, err, aborted)
	}
}

// pacedDisk is a disk that needs time for each request.
type pacedDisk struct{ *memoryDisk }

func (d pacedDisk) WriteAt(p []byte, at int64) (int, error) {
	time.Sleep(time.Second)
	return d.memoryDisk.WriteAt(p, at)
}

func (d pacedDisk) ReadAt(p []byte, at int64) (int, error) {
	time.Sleep(time.Second)
	return d.memoryDisk.ReadAt(p, at)
}

// With a runtime the test continues where the time for writing ended, and everything written is verified.
func TestDiskRuntime(t *testing.T) {
	const size = 8 << 20
	d := &memoryDisk{data: make([]byte, size)}
	var mu sync.Mutex
	var last, total int64
	progress := func(n, of int64) {
		mu.Lock()
		defer mu.Unlock()
		if n > of {
			t.Errorf("got progress %d of %d", n, of)
		}
		if n > last {
			last, total = n, of
		}
	}
	var report DiskReport
	var err error
	synctest.Test(t, func(t *testing.T) { // all sleeps are in the bubble's time
		report, err = Disk(t.Context(), pacedDisk{d}, size, DiskOptions{Runtime: 5 * time.Minute}, progress)
	})
	if last != report.Written+report.Verified || total < last || total > 2*last {
		t.Errorf("got progress %d of %d at the end, want %d", last, total, report.Written+report.Verified)
	}
	if err != nil || report.Written <= size || report.Written != report.Verified || report.Seconds < 300 {
		t.Errorf("got %+v and %v, want the same number of bytes written and verified", report, err)
	}
	var positions []int64
	d.onWrite = func(_ []byte, at int64) (int64, error) {
		positions = append(positions, at)
		return at, nil
	}
	test := &diskTest{
		medium: d, progress: noProgress, report: DiskReport{Size: size}, key: testKey(t), started: time.Now(),
	}
	end, err := test.pass(t.Context(), 1, requestBytes, time.Now().Add(-1))
	if err != nil || end <= requestBytes || end > (1+diskWorkers)*requestBytes ||
		test.report.Written != end-requestBytes {
		t.Errorf("got end %d, %+v and %v, want a short pass that begins at %d", end, test.report, err, requestBytes)
	}
	for _, at := range positions {
		if at < requestBytes || at >= end {
			t.Errorf("write at byte %d, want %d to %d", at, requestBytes, end)
		}
	}
}

// Large numbers have a total, too.
func TestDiskTotal(t *testing.T) {
	for _, test := range []struct {
		test     *diskTest
		done     int64
		low, max int64
	}{
		{&diskTest{report: DiskReport{Size: 1 << 40}, options: DiskOptions{Loops: 4}}, 5, 1 << 43, 1 << 43},
		{
			&diskTest{report: DiskReport{Size: 1 << 44}, options: DiskOptions{Loops: math.MaxInt32}},
			5, math.MaxInt64, math.MaxInt64,
		},
		{&diskTest{started: time.Now().Add(-time.Hour), options: DiskOptions{Runtime: 2 * time.Hour}}, 1e9, 19e8, 2e9},
		{&diskTest{started: time.Now().Add(-time.Hour), options: DiskOptions{Runtime: time.Minute}}, 5, 5, 5},
		{
			&diskTest{started: time.Now(), options: DiskOptions{Runtime: maxDuration}},
			1 << 60, math.MaxInt64, math.MaxInt64,
		},
	} {
		if got := test.test.total(test.done); got < test.low || got > test.max {
			t.Errorf("%+v: got %d, want %d to %d", test.test.options, got, test.low, test.max)
		}
	}
}

// The output file has the keys of fio's.
func TestDisksOutput(t *testing.T) {
	path := filepath.Join(t.TempDir(), "disks.json")
	disks, err := NewDiskResults(DiskOptions{Output: path})
	if err != nil {
		t.Fatal(err)
	}
	disks.Add("/dev/sdb", DiskReport{Written: 100, Verified: 50, writeTime: time.Second, wrong: 3},
		errors.New("3 blocks"))
	disks.Add("/dev/sda", DiskReport{Written: 10, Verified: 10, readTime: 2 * time.Second}, nil)
	disks.Add("/dev/sdc", DiskReport{}, fmt.Errorf("open: %w", syscall.EBUSY))
	if err := disks.Finish(); err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	var got struct {
		Jobs      []map[string]any `json:"jobs"`
		Timestamp int64            `json:"timestamp"`
	}
	if err := json.Unmarshal(text, &got); err != nil {
		t.Fatal(err)
	}
	direction := func(bytes, rate, runtime float64) map[string]any {
		return map[string]any{"io_bytes": bytes, "bw_bytes": rate, "runtime": runtime}
	}
	want := []map[string]any{
		{
			"jobname": "/dev/sda", "error": 0.0, "total_err": 0.0,
			"read": direction(10, 5, 2000), "write": direction(10, 0, 0),
		},
		{
			"jobname": "/dev/sdb", "error": 84.0, "total_err": 3.0, "ironroot_error": "3 blocks",
			"read": direction(50, 0, 0), "write": direction(100, 100, 1000),
		},
		{
			"jobname": "/dev/sdc", "error": 16.0, "total_err": 1.0,
			"ironroot_error": "open: device or resource busy",
			"read":           direction(0, 0, 0), "write": direction(0, 0, 0),
		},
	}
	if diff := cmp.Diff(want, got.Jobs); diff != "" || got.Timestamp == 0 {
		t.Errorf("timestamp %d, jobs (-want +got):\n%s", got.Timestamp, diff)
	}
}

func testKey(t *testing.T) cipher.Block {
	t.Helper()
	key, err := aes.NewCipher(make([]byte, 16))
	if err != nil {
		t.Fatal(err)
	}
	return key
}
