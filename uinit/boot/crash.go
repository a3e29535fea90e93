//go:build linux

package boot

import (
	"context"
	"crypto/fips140"
	"fmt"
	"io"
	"log/slog"
	"os"
	"runtime/debug"
	"slices"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"ironroot/agent"
	"ironroot/agent/clock"
	"ironroot/agent/power"
	"ironroot/internal/goroutine"
)

const (
	// panicDelay is the time for which a machine shows a panic before it restarts.
	panicDelay = 30 * time.Second
	// flushTimeout limits the time to write to the consoles.
	flushTimeout = 10 * time.Second
	// syncTimeout limits the time of a sync of the file systems.
	syncTimeout = 30 * time.Second
)

// panicTime parses the kernel's panic= parameter: seconds until a restart; 0 = never; negative = at once. Without the
// parameter, or if it is not a number, the result is panicDelay.
func panicTime(value string) (delay time.Duration, restart bool) {
	seconds, err := strconv.Atoi(value)
	switch {
	case err != nil:
		return panicDelay, true
	case seconds == 0:
		return 0, false
	case seconds < 0:
		return 0, true
	}
	return time.Duration(seconds) * time.Second, true
}

// spawn runs f in a goroutine. A panic is logged and ends only f.
func (b *boot) spawn(f func()) {
	goroutine.Go(func() error {
		f()
		return nil
	}, nil)
}

// spawnGuarded runs f in a goroutine whose panic is shown on every console and restarts the machine.
func (b *boot) spawnGuarded(f func()) {
	goroutine.Go(func() error {
		defer b.guard("goroutine")
		f()
		return nil
	}, nil)
}

// guard must be deferred in a goroutine whose panic would end the process, which makes the kernel panic.
func (b *boot) guard(where string) {
	value := recover()
	if value == nil {
		return
	}
	b.showPanic(where, value, debug.Stack())
	b.die("panic")
}

// showPanic writes the value of a panic and its stack to every console, with secrets masked.
func (b *boot) showPanic(where string, value any, stack []byte) {
	b.console.Plain()
	text := fmt.Sprintf("\n%s\npanic in %s: %v\n\n%s\n", strings.Repeat("=", 72), where, value, stack)
	_, _ = io.WriteString(b.console, b.journal.Clean(text))
}

// flush waits until the log is written to all consoles, at most for flushTimeout.
func (b *boot) flush() { b.console.Flush(flushTimeout) }

// die restarts the machine after the delay of panic=. It does not return.
func (b *boot) die(reason string) {
	b.console.Plain()
	b.flush()
	_ = power.Sync(context.Background(), syncTimeout) // the machine restarts in any case
	delay, restart := panicTime(b.params["panic"])
	if !restart {
		_, _ = fmt.Fprintf(b.console, "%s: the machine stays as it is (panic=0)\n", reason)
		select {}
	}
	_, _ = fmt.Fprintf(b.console, "%s: the machine restarts in %v\n", reason, delay)
	b.flush()
	time.Sleep(delay)
	err := unix.Reboot(unix.LINUX_REBOOT_CMD_RESTART)
	_, _ = fmt.Fprintf(b.console, "restart: %v\n", err)
	select {}
}

// crashOutput prepares for panics that no guard catches. The runtime writes their stack to standard error and exits,
// and the kernel panics and restarts the machine. Nothing of this program runs in between, so file systems are not
// synced: writes to a disk are flushed before their success is reported. The crash reporter shows the stack on all
// consoles; without it, only the last console does.
func (b *boot) crashOutput() {
	if err := b.startCrashReporter(); err != nil {
		b.log.Warn("crash reporter not started: panics are shown on one console only", "err", err)
	}
	if _, given := b.params["panic"]; !given {
		b.sysctl("kernel/panic", strconv.Itoa(int(panicDelay.Seconds())))
	}
}

// sysctl sets a parameter of the kernel. Failures are logged.
func (b *boot) sysctl(name, value string) {
	if err := os.WriteFile("/proc/sys/"+name, []byte(value), 0o644); err != nil {
		b.log.Warn("kernel setting", "name", name, "err", err)
	}
}

// restrictKernel hides the kernel log and kernel addresses from programs without CAP_SYSLOG. Otherwise GRUB of an image
// could read the log by syslog(2).
func (b *boot) restrictKernel() {
	b.sysctl("kernel/dmesg_restrict", "1")
	b.sysctl("kernel/kptr_restrict", "1")
}

// quietKernel keeps kernel messages of level warning and below off the consoles, where they would interrupt the lines
// of this program. The kernel log contains them. A level on the kernel command line has precedence.
func (b *boot) quietKernel() {
	for _, word := range strings.Fields(b.cmdline) {
		name, _, _ := strings.Cut(word, "=")
		if slices.Contains([]string{"loglevel", "debug", "ignore_loglevel", "quiet"}, name) {
			return
		}
	}
	const errorsOnly = 4 // messages below this level: KERN_ERR and worse
	b.sysctl("kernel/printk", strconv.Itoa(errorsOnly))
}

// welcome writes the first line, and on monitors what this program is.
func (b *boot) welcome() {
	b.console.banner("\nironroot " + agent.Version + ", the deploy ramdisk: the machine is being prepared\n\n")
	var uts unix.Utsname
	var info unix.Sysinfo_t
	_ = unix.Uname(&uts) // cannot fail with a valid pointer
	_ = unix.Sysinfo(&info)
	b.log.Info("ironroot starts", "kernel", unix.ByteSliceToString(uts.Release[:]),
		"memory_mib", totalMemory(&info)>>20, slog.Any("consoles", b.console.Paths()),
		"uptime", clock.Uptime().Round(uptimePrecision))
	if fips140.Enabled() {
		b.log.Info("FIPS 140-3 mode", "module", fips140.Version())
	}
}

// totalMemory returns the memory that the kernel can use, in bytes.
func totalMemory(info *unix.Sysinfo_t) int64 { return int64(info.Totalram) * int64(info.Unit) }
