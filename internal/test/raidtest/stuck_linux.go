package raidtest

import (
	"bytes"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"ironroot/internal/test/testenv"
	"ironroot/storage/block"
)

// StuckDisk makes a disk that is full of a tenant's data, a file on a frozen file system. Its writes block until thaw
// is called.
func StuckDisk(t *testing.T) (d block.Device, thaw func()) {
	t.Helper()
	testenv.Programs(t, "mkfs.ext4")
	const freeze, thawRequest = 0xc0045877, 0xc0045878 // FIFREEZE, FITHAW
	image, dir := testenv.SparseFile(t, 64*MiB), t.TempDir()
	testenv.Run(t, "mkfs.ext4", "-q", image)
	testenv.Mount(t, testenv.Loop(t, image, 512), dir, "ext4", "")
	t.Cleanup(func() { testenv.Detach(t, dir) })
	file := filepath.Join(dir, "disk")
	if err := os.WriteFile(file, bytes.Repeat([]byte("tenant! "), DiskSize/8), 0o600); err != nil {
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
		Free(t, path)
		_ = top.Close()
	})
	thawAtExit(t, dir)
	if err := unix.IoctlSetInt(int(top.Fd()), freeze, 0); err != nil {
		t.Fatal(err)
	}
	return block.Device{Name: filepath.Base(path), Path: path, Type: "disk", Size: DiskSize}, thaw
}

// thawAtExit thaws a file system when this process is killed, for example by the time limit of its tests. Otherwise
// the kernel waits forever for a write to it, and does not end the process.
func thawAtExit(t *testing.T, dir string) {
	t.Helper()
	testenv.Programs(t, "fsfreeze")
	cmd := exec.CommandContext(t.Context(), "sh", "-c",
		`trap : TERM; echo ready; read -r end; fsfreeze --unfreeze "$0"`, dir)
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: unix.SIGTERM}
	if _, err := cmd.StdinPipe(); err != nil {
		t.Fatal(err)
	}
	ready, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	started, ended := make(chan error), make(chan struct{})
	go func() {
		// The kernel sends Pdeathsig when the thread that started the process ends. Other threads may be blocked by
		// the write.
		runtime.LockOSThread()
		started <- cmd.Start()
		<-ended
	}()
	if err := <-started; err != nil {
		t.Fatal(err)
	}
	if _, err := ready.Read(make([]byte, 1)); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = cmd.Wait() // killed by the end of the context
		close(ended)
	})
}

// Free waits until nothing holds a disk exclusively. The time limit of the test binary applies.
func Free(t *testing.T, path string) {
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
