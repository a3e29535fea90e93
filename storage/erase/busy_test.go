package erase

import (
	"bufio"
	"context"
	"errors"
	"os/exec"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"golang.org/x/sys/unix"

	"ironroot/internal/test/testenv"
	"ironroot/internal/timelimit"
	"ironroot/storage/partition"
	"ironroot/storage/sysfs"
)

// heldDisk makes a disk and a process that has its partition open. The process ends when its standard input is closed.
func heldDisk(t *testing.T) (disk string, pid int, release func()) {
	t.Helper()
	testenv.Programs(t, "sgdisk", "sh", "head")
	disk = testenv.Loop(t, testenv.SparseFile(t, 24*mib), 512)
	testenv.Run(t, "sgdisk", "-n", "1:2048:+8M", disk)
	if err := partition.Sync(t.Context(), sysfs.Root{}, disk); err != nil {
		t.Fatal(err)
	}
	holder := exec.CommandContext(t.Context(), "sh", "-c", `exec 3<"$0"; echo open; head -n 1 >/dev/null`, disk+"p1")
	in, err := holder.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := holder.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := holder.Start(); err != nil {
		t.Fatal(err)
	}
	if line, err := bufio.NewReader(out).ReadString('\n'); err != nil || line != "open\n" {
		t.Fatalf("holder: got %q and %v, want it to open the partition", line, err)
	}
	released := false
	release = func() {
		if !released {
			released = true
			_ = in.Close()
			_ = holder.Wait()
		}
	}
	t.Cleanup(release)
	return disk, holder.Process.Pid, release
}

// methods maps names to erase methods.
var methods = map[string]func(t *testing.T, disk string, wait Wait) error{
	"metadata": func(t *testing.T, disk string, wait Wait) error {
		return Metadata(t.Context(), sysfs.Root{}, disk, wait)
	},
	"full": func(t *testing.T, disk string, wait Wait) error {
		_, err := tryRun(t.Context(), sysfs.Root{}, device(t, disk), Options{Zeroize: true, Wait: wait})
		return err
	},
}

// A process that has a partition open delays the erase until it ends.
//
// Parity: P4
func TestHolderDelays(t *testing.T) {
	for name, erase := range methods {
		disk, _, release := heldDisk(t)
		wait := Wait{Interval: time.Millisecond, Retries: 1 << 20}
		done := make(chan error)
		go func() { done <- erase(t, disk, wait) }()
		select {
		case err := <-done:
			t.Errorf("%s: got %v while a process held the partition, want a wait", name, err)
		case <-time.After(100 * time.Millisecond):
			release()
			if err := <-done; err != nil {
				t.Errorf("%s: after the holder ended: %v", name, err)
			}
		}
		if out := wipefs(t, disk); out != "" {
			t.Errorf("%s: is left:\n%s", name, out)
		}
	}
}

// If a holder stays, the error names it and nothing is written.
//
// Parity: P4
func TestHolderStays(t *testing.T) {
	for name, erase := range methods {
		disk, pid, _ := heldDisk(t)
		before := wipefs(t, disk)
		err := erase(t, disk, Wait{Interval: time.Millisecond, Retries: 3})
		want := "process " + strconv.Itoa(pid)
		if !errors.Is(err, ErrBusy) || !strings.Contains(err.Error(), want) ||
			!strings.Contains(err.Error(), disk+"p1") {
			t.Errorf("%s: got %v, want an ErrBusy that names %s and %sp1", name, err, want, disk)
		}
		if after := wipefs(t, disk); after != before {
			t.Errorf("%s: the disk was written to: got %s, want %s", name, after, before)
		}
	}
}

// The caller sets the number of checks and the pause between them.
func TestWaitUntil(t *testing.T) {
	disk := testenv.Loop(t, testenv.SparseFile(t, mib), 512)
	calls := 0
	err := Wait{Interval: time.Millisecond, Retries: 4}.until(t.Context(), sysfs.Root{}, disk, func() error {
		calls++
		return unix.EBUSY
	})
	if !errors.Is(err, ErrBusy) || !errors.Is(err, unix.EBUSY) || calls != 5 {
		t.Errorf("got %v after %d calls, want ErrBusy after 5", err, calls)
	}
	calls = 0
	if err := (Wait{Retries: 4}).until(t.Context(), sysfs.Root{}, disk,
		func() error { calls++; return unix.EIO }); !errors.Is(err, unix.EIO) || calls != 1 {
		t.Errorf("got %v after %d calls, want EIO after 1", err, calls)
	}
}

// AwaitFree names the device and its holder, and waits for the holder's end.
func TestAwaitFree(t *testing.T) {
	disk, pid, release := heldDisk(t)
	err := AwaitFree(t.Context(), sysfs.Root{}, disk, Wait{})
	if want := disk + ": device is in use: held by process " + strconv.Itoa(pid); !errors.Is(err, ErrBusy) ||
		!strings.HasPrefix(err.Error(), want) {
		t.Errorf("got %v, want an error with %q", err, want)
	}
	release()
	if err := AwaitFree(t.Context(), sysfs.Root{}, disk, Wait{}); err != nil {
		t.Error(err)
	}
}

// A wait for a holder extends the time limit, regardless of the duration of the wait.
func TestBusyExtendsTheLimit(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		tries := 0
		wait := Wait{Retries: 3, Interval: time.Hour}
		_, err := timelimit.Do(t.Context(), timelimit.Limits{NoProgress: time.Minute, Grace: time.Second},
			func(ctx context.Context) (any, error) {
				return nil, wait.until(ctx, sysfs.Root{}, "/dev/none", func() error {
					if tries++; tries <= wait.Retries {
						return unix.EBUSY
					}
					return nil
				})
			})
		if err != nil || tries != 4 {
			t.Errorf("got %v after %d tries, want success after 4", err, tries)
		}
	})
}
