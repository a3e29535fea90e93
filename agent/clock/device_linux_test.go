package clock

import (
	"errors"
	"io/fs"
	"os"
	"runtime"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"ironroot/internal/test/testenv"
)

// withDevices gives the calling goroutine a private /dev with the hardware clock that create creates. The thread ends
// with the goroutine.
func withDevices(t *testing.T, create func() error) {
	t.Helper()
	testenv.Root(t)
	runtime.LockOSThread()
	if err := unix.Unshare(unix.CLONE_FS | unix.CLONE_NEWNS); err != nil {
		t.Fatal(err)
	}
	if err := unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""); err != nil {
		t.Fatal(err)
	}
	if err := unix.Mount("none", "/dev", "tmpfs", 0, ""); err != nil {
		t.Fatal(err)
	}
	if err := create(); err != nil {
		t.Fatal(err)
	}
}

// Reading a missing hardware clock fails, setting it does not. Both fail for a clock with errors.
func TestHardwareFails(t *testing.T) {
	now := time.Date(2026, 3, 4, 5, 6, 7, 0, time.UTC)
	for _, c := range []struct {
		name           string
		create         func() error
		reads, setting error
	}{
		{"none", func() error { return nil }, fs.ErrNotExist, nil},
		{"no clock", func() error { return os.WriteFile(device, nil, 0o600) }, unix.ENOTTY, unix.ENOTTY},
		{"not opened", func() error { return os.Symlink(device, device) }, unix.ELOOP, unix.ELOOP},
	} {
		t.Run(c.name, func(t *testing.T) {
			withDevices(t, c.create)
			if got, err := Hardware(); !errors.Is(err, c.reads) || !got.IsZero() {
				t.Errorf("Hardware: got %v and error %v, want %v", got, err, c.reads)
			}
			if err := SetHardware(now); !errors.Is(err, c.setting) {
				t.Errorf("SetHardware: got error %v, want %v", err, c.setting)
			}
		})
	}
}

func TestSetSystemFails(t *testing.T) {
	testenv.Root(t)
	testenv.DropCapability(t, unix.CAP_SYS_TIME)
	if err := SetSystem(time.Now()); !errors.Is(err, unix.EPERM) {
		t.Errorf("without the capability: got error %v, want %v", err, unix.EPERM)
	}
}
