package generic

import (
	"bytes"
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"ironroot/agent/hardware"
	"ironroot/internal/testenv"
	"ironroot/storage/block"
	"ironroot/storage/erase"
)

// stuckDisk makes a disk that is full of a tenant's data. Its writes do not return before thaw is called: it is a file
// on a frozen file system.
func stuckDisk(t *testing.T) (d block.Device, thaw func()) {
	t.Helper()
	testenv.Programs(t, "mkfs.ext4")
	const freeze, thawRequest = 0xc0045877, 0xc0045878 // FIFREEZE, FITHAW
	image, dir := testenv.SparseFile(t, 64*mib), t.TempDir()
	testenv.Run(t, "mkfs.ext4", "-q", image)
	if err := unix.Mount(testenv.Loop(t, image, 512), dir, "ext4", 0, ""); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := unix.Unmount(dir, unix.MNT_DETACH); err != nil {
			t.Error(err)
		}
	})
	file := filepath.Join(dir, "disk")
	if err := os.WriteFile(file, bytes.Repeat([]byte("tenant! "), diskSize/8), 0o600); err != nil {
		t.Fatal(err)
	}
	path := testenv.Loop(t, file, 512)
	top, err := os.Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	frozen := true
	thaw = func() {
		if frozen {
			frozen = false
			if err := unix.IoctlSetInt(int(top.Fd()), thawRequest, 0); err != nil {
				t.Error(err)
			}
		}
	}
	t.Cleanup(func() {
		thaw()
		free(t, path)
		_ = top.Close()
	})
	if err := unix.IoctlSetInt(int(top.Fd()), freeze, 0); err != nil {
		t.Fatal(err)
	}
	return block.Device{Name: filepath.Base(path), Path: path, Type: "disk", Size: diskSize}, thaw
}

// free waits until nothing holds a disk exclusively. The limit is that of the test binary.
func free(t *testing.T, path string) {
	t.Helper()
	for {
		f, err := os.OpenFile(path, os.O_RDWR|unix.O_EXCL, 0)
		if err == nil {
			_ = f.Close()
			return
		}
		if !errors.Is(err, unix.EBUSY) {
			t.Fatal(err)
		}
		time.Sleep(10 * time.Millisecond)
	}
}

// A disk whose write does not return is an error that names it, and the others are erased. It stays open exclusively,
// so that nothing else writes to it, and nothing more is written after the write has returned.
func TestEraseStuckDisk(t *testing.T) {
	t.Parallel()
	for name, step := range map[string]func(*Manager) hardware.StepFunc{
		"erase_devices": func(m *Manager) hardware.StepFunc { return m.eraseDevices },
		"metadata":      func(m *Manager) hardware.StepFunc { return m.eraseMetadata },
	} {
		stuck, thaw := stuckDisk(t)
		plain := memberDisk(t, testenv.RAID{Name: "plain", Level: 1})
		disks := []block.Device{stuck, plain}
		if name == "metadata" {
			disks = []block.Device{plain, stuck} // the last one comes first
		}
		m := onThisMachine(t, disks...)
		m.limits = erase.Limits{Silence: 10 * time.Second, Grace: time.Second}
		_, err := step(m)(t.Context(), hardware.Call{})
		erased, failed, _ := strings.Cut(errorText(err), "; not erased: ")
		if typeOf(err) != "BlockDeviceEraseError" || !strings.Contains(erased, plain.Path+" (") || strings.Contains(erased, stuck.Path) {
			t.Errorf("%s: got %v, want an error that lists %s alone as erased", name, err, plain.Path)
		}
		if want := stuck.Path + ": still busy in the kernel: no progress for 10s"; !strings.Contains(failed, want) {
			t.Errorf("%s: got %v, want %q in it", name, err, want)
		}
		if bytes.Contains(content(t, plain)[:mib], []byte("tenant!")) {
			t.Errorf("%s: %s was not erased", name, plain.Path)
		}
		if f, err := os.OpenFile(stuck.Path, os.O_RDWR|unix.O_EXCL, 0); !errors.Is(err, unix.EBUSY) {
			t.Errorf("%s: claimed again: got %v, want %v", name, err, unix.EBUSY)
			_ = f.Close()
		}
		thaw()
		free(t, stuck.Path)
		if data := content(t, stuck); bytes.Count(data, []byte("tenant!")) < (diskSize-4*mib)/8 {
			t.Errorf("%s: more was written to %s after it was given up", name, stuck.Path)
		}
	}
}

// A step that is cancelled ends, although the kernel does not return from a write.
func TestEraseStuckCancelled(t *testing.T) {
	t.Parallel()
	stuck, _ := stuckDisk(t)
	m := onThisMachine(t, stuck)
	m.limits.Grace = time.Second
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	ended := make(chan error, 1)
	go func() {
		_, err := m.eraseMetadata(ctx, hardware.Call{})
		ended <- err
	}()
	for { // the limit is that of the test binary
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
	if want := "erased: none; not erased: " + stuck.Path + ": still busy in the kernel: context canceled"; !strings.Contains(errorText(err), want) {
		t.Errorf("got %v, want %q in it", err, want)
	}
}

func errorText(err error) string {
	if err == nil {
		return ""
	}
	return err.Error()
}
