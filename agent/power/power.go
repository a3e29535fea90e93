// Package power stops and restarts the machine from PID 1: it syncs and unmounts the file systems and calls reboot(2),
// and if that fails triggers the kernel's sysrq.
package power

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"slices"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"ironroot/internal/goroutine"
)

// syncTimeout limits the sync before the machine stops: a failing disk must not prevent a restart.
const syncTimeout = 60 * time.Second

// Power restarts the machine or powers it off. Methods of Machine return only if they fail.
type Power interface {
	Reboot(ctx context.Context) error
	PowerOff(ctx context.Context) error
}

// Machine is the machine this process runs on.
type Machine struct {
	Log     *slog.Logger // nil discards messages
	Console LogFlusher   // nil flushes nothing
}

// LogFlusher is the destination of the log.
type LogFlusher interface {
	// Flush waits until the log is written. It is called before each attempt to stop the machine.
	Flush()
}

// Reboot implements [Power].
func (m Machine) Reboot(ctx context.Context) error {
	return m.stop(ctx, "restart", commandRestart, "b")
}

// PowerOff implements [Power].
func (m Machine) PowerOff(ctx context.Context) error {
	return m.stop(ctx, "power off", commandPowerOff, "o")
}

// stop returns only if both reboot(2) and sysrq fail.
func (m Machine) stop(ctx context.Context, what string, command int, key string) error {
	log := m.Log
	if log == nil {
		log = slog.New(slog.DiscardHandler)
	}
	if err := ctx.Err(); err != nil {
		return fmt.Errorf("%s: %w", what, err)
	}
	log.Info("syncing and unmounting file systems", "action", what)
	if err := Sync(ctx, syncTimeout); err != nil {
		log.Error("file systems not synced, continuing", "err", err)
	}
	unmountAll(log)
	flush := func() {
		if m.Console != nil {
			m.Console.Flush()
		}
	}
	log.Info("calling reboot(2)", "action", what)
	flush()
	rebootErr := reboot(command)
	log.Error("reboot(2) failed, trying sysrq", "action", what, "err", rebootErr)
	flush()
	sysrqErr := sysrq(key)
	if sysrqErr == nil {
		// The kernel executes the key asynchronously.
		select {
		case <-time.After(syncTimeout):
			sysrqErr = fmt.Errorf("sysrq %s had no effect within %v", key, syncTimeout)
		case <-ctx.Done():
			sysrqErr = ctx.Err()
		}
	}
	return fmt.Errorf("%s: %w", what, errors.Join(fmt.Errorf("reboot(2): %w", rebootErr), sysrqErr))
}

// Sync flushes all file systems. It returns an error when the time is over or ctx ends: a disk that hangs must not
// prevent a restart.
func Sync(ctx context.Context, limit time.Duration) error {
	done := make(chan struct{})
	goroutine.Go(func() error {
		unix.Sync()
		return nil
	}, func(error) { close(done) })
	select {
	case <-done:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	case <-time.After(limit):
		return fmt.Errorf("sync not finished after %v", limit)
	}
}

// unmountAll unmounts the file systems on block devices, the latest mount first. Busy ones are remounted read-only.
func unmountAll(log *slog.Logger) {
	table, err := os.ReadFile("/proc/self/mounts")
	if err != nil {
		log.Warn("mounted file systems not listed", "err", err)
		return
	}
	for _, target := range onDevices(string(table)) {
		err := unix.Unmount(target, 0)
		if err == nil {
			continue
		}
		if remount := remountReadOnly(target); remount != nil {
			log.Warn("file system not unmounted", "path", target,
				"err", errors.Join(err, fmt.Errorf("remount read-only: %w", remount)))
		}
	}
}

// onDevices returns the mount points of a mount table whose source is a device, the latest mount first.
func onDevices(table string) []string {
	unescape := strings.NewReplacer(`\040`, " ", `\011`, "\t", `\012`, "\n", `\134`, `\`)
	var targets []string
	for line := range strings.Lines(table) {
		if f := strings.Fields(line); len(f) >= 4 && strings.HasPrefix(f[0], "/dev/") {
			targets = append(targets, unescape.Replace(f[1]))
		}
	}
	slices.Reverse(targets)
	return targets
}

func sysrq(key string) error {
	if err := os.WriteFile("/proc/sys/kernel/sysrq", []byte("1"), 0); err != nil {
		return fmt.Errorf("allow sysrq: %w", err)
	}
	if err := os.WriteFile("/proc/sysrq-trigger", []byte(key), 0); err != nil {
		return fmt.Errorf("sysrq %s: %w", key, err)
	}
	return nil
}

// Refused is the Power of a process that must not stop its machine. Its methods return an error.
type Refused struct{}

var errRefused = errors.New("refused: started without --destructive")

// Reboot implements [Power].
func (Refused) Reboot(context.Context) error { return fmt.Errorf("restart: %w", errRefused) }

// PowerOff implements [Power].
func (Refused) PowerOff(context.Context) error { return fmt.Errorf("power off: %w", errRefused) }
