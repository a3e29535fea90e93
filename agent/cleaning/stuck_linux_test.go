package cleaning

import (
	"bytes"
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"ironroot/internal/test/raidtest"
	"ironroot/internal/test/testenv"
	"ironroot/internal/timelimit"
	"ironroot/storage/block"
)

// stuckCase is a step that erases a disk that is stuck and another one.
type stuckCase struct {
	name         string
	stuck, plain block.Device
	thaw         func()
	step         stepFunc
	err          error // of the step
}

// newStuckCase makes the disks of a case. Only the stuck disk has a short limit: the other one can be slow.
func newStuckCase(t *testing.T, name string, step func(*Steps) stepFunc) *stuckCase {
	t.Helper()
	c := &stuckCase{name: name, plain: raidtest.MemberDisk(t, testenv.RAID{Name: "plain", Level: 1})}
	c.stuck, c.thaw = raidtest.StuckDisk(t)
	disks := []block.Device{c.stuck, c.plain}
	if name == "metadata" {
		disks = []block.Device{c.plain, c.stuck} // the last one comes first
	}
	m := onThisMachine(t, disks...)
	fake(m).limits = func(d block.Device) timelimit.Limits {
		if d.Path == c.stuck.Path {
			return timelimit.Limits{NoProgress: 10 * time.Second, Grace: time.Second}
		}
		return timelimit.Disk
	}
	c.step = step(m)
	return c
}

// A disk whose write does not return is an error that names it, and the others are erased. It stays open exclusively,
// so that nothing else writes to it, and nothing more is written after the write has returned.
//
// All disks are made before the first is erased: a process that starts during an erase can inherit an open disk. Both
// steps run concurrently because each one takes the time of its limit.
func TestEraseStuckDisk(t *testing.T) {
	cases := []*stuckCase{
		newStuckCase(t, "erase_devices", func(m *Steps) stepFunc { return m.EraseDevices }),
		newStuckCase(t, "metadata", func(m *Steps) stepFunc { return m.EraseMetadata }),
	}
	var steps sync.WaitGroup
	for _, c := range cases {
		steps.Go(func() { _, c.err = c.step(t.Context(), nil) })
	}
	steps.Wait()
	for _, c := range cases {
		erased, failed, _ := strings.Cut(errorText(c.err), "; not erased: ")
		if typeOf(c.err) != "BlockDeviceEraseError" || !strings.Contains(erased, c.plain.Path+" (") ||
			strings.Contains(erased, c.stuck.Path) {
			t.Errorf("%s: got %v, want an error that lists %s alone as erased", c.name, c.err, c.plain.Path)
		}
		if want := c.stuck.Path + ": still busy in the kernel: no progress for 10s"; !strings.Contains(failed, want) {
			t.Errorf("%s: got %v, want %q in it", c.name, c.err, want)
		}
		if bytes.Contains(content(t, c.plain)[:mib], []byte("tenant!")) {
			t.Errorf("%s: %s was not erased", c.name, c.plain.Path)
		}
		if f, err := os.OpenFile(c.stuck.Path, os.O_RDWR|unix.O_EXCL, 0); !errors.Is(err, unix.EBUSY) {
			t.Errorf("%s: claimed again: got %v, want %v", c.name, err, unix.EBUSY)
			_ = f.Close()
		}
		c.thaw()
		raidtest.Free(t, c.stuck.Path)
		if data := content(t, c.stuck); bytes.Count(data, []byte("tenant!")) < (diskSize-4*mib)/8 {
			t.Errorf("%s: more was written to %s after it was given up", c.name, c.stuck.Path)
		}
	}
}

// A step that is cancelled ends, although the kernel does not return from a write.
func TestEraseStuckCancelled(t *testing.T) {
	stuck, _ := raidtest.StuckDisk(t)
	m := onThisMachine(t, stuck)
	fake(m).limits = func(block.Device) timelimit.Limits {
		return timelimit.Limits{NoProgress: timelimit.Disk.NoProgress, Grace: time.Second}
	}
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	ended := make(chan error, 1)
	go func() {
		_, err := m.EraseMetadata(ctx, nil)
		ended <- err
	}()
	for { // limited by the test binary
		text, err := os.ReadFile(filepath.Join("/sys/block", stuck.Name, "inflight"))
		if err != nil {
			t.Fatal(err)
		}
		if fields := strings.Fields(string(text)); len(fields) == 2 && fields[1] != "0" {
			break
		}
		time.Sleep(10 * time.Millisecond)
	}
	cancel()
	err := <-ended
	want := "erased: none; not erased: " + stuck.Path + ": still busy in the kernel: context canceled"
	if !strings.Contains(errorText(err), want) {
		t.Errorf("got %v, want %q in it", err, want)
	}
}

// While the kernel is busy with a disk, later calls for the disk return the error of the first one. After another
// error, the disk is used again.
func TestBoundedAgain(t *testing.T) {
	m := newMachine(t)
	limits := timelimit.Disk
	fake(m).limits = func(block.Device) timelimit.Limits { return limits }
	run := startErase(t, m)
	disk, broken := block.Device{Path: "/dev/stuck"}, errors.New("broken")
	calls := 0
	count := func(context.Context, block.Device) (string, error) {
		calls++
		return "", broken
	}
	for range 2 {
		if _, err := limitRunDisk(t.Context(), run, disk, count); !errors.Is(err, broken) {
			t.Errorf("got %v, want %v", err, broken)
		}
	}
	if calls != 2 {
		t.Errorf("got %d calls, want 2", calls)
	}
	returns := make(chan struct{})
	defer close(returns)
	limits = timelimit.Limits{NoProgress: time.Millisecond, Grace: time.Millisecond}
	_, first := limitRunDisk(t.Context(), run, disk, func(context.Context, block.Device) (string, error) {
		<-returns
		return "", nil
	})
	limits = timelimit.Disk
	_, second := limitRunDisk(t.Context(), run, disk, count)
	if !errors.Is(first, timelimit.ErrStuck) || !errors.Is(second, timelimit.ErrStuck) || calls != 2 {
		t.Errorf("got %v, then %v and %d calls, want twice %v and no further call",
			first, second, calls-2, timelimit.ErrStuck)
	}
	other := block.Device{Path: "/dev/other"}
	if _, err := limitRunDisk(t.Context(), run, other, count); !errors.Is(err, broken) {
		t.Errorf("another disk: got %v, want %v", err, broken)
	}
}
