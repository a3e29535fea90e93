//go:build linux

package boot

import (
	"context"
	"os"
	"os/signal"
	"time"

	"golang.org/x/sys/unix"

	"ironroot/agent/power"
)

// stopTimeout limits the time for which the machine waits for the end of the work before it stops.
const stopTimeout = 5 * time.Second

// signals returns a context that ends at a signal: SIGINT, SIGTERM and Ctrl-Alt-Del restart the machine, SIGUSR2
// powers it off. The machine is then shut down in order.
func (b *boot) signals(ctx context.Context) context.Context {
	// Otherwise the kernel restarts at once, without a sync. Now Ctrl-Alt-Del sends SIGINT.
	if err := unix.Reboot(unix.LINUX_REBOOT_CMD_CAD_OFF); err != nil {
		b.log.Warn("Ctrl-Alt-Del", "err", err)
	}
	// The Go runtime's handler of SIGQUIT would end this process, and the kernel would panic.
	signal.Ignore(unix.SIGHUP, unix.SIGPIPE, unix.SIGTTIN, unix.SIGTTOU, unix.SIGQUIT)
	asked := make(chan os.Signal, 1)
	signal.Notify(asked, unix.SIGINT, unix.SIGTERM, unix.SIGUSR2)
	ctx, cancel := context.WithCancel(ctx)
	b.spawnGuarded(func() {
		which := <-asked
		b.console.Plain()
		b.log.Info("asked to stop", "signal", which.String())
		cancel()
		machine := power.Machine{Log: b.log, Console: &Machine{boot: b}}
		stop := machine.Reboot
		if which == unix.SIGUSR2 {
			stop = machine.PowerOff
		}
		b.console.Flush(stopTimeout)
		b.log.Error("not stopped", "err", stop(context.Background()))
		b.die("stop failed")
	})
	return ctx
}
