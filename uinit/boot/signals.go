package boot

import (
	"context"
	"os"
	"os/signal"
	"time"

	"ironroot/agent/power"

	"golang.org/x/sys/unix"
)

// stopTime is how long the work may take to end before the machine is stopped all the same.
const stopTime = 5 * time.Second

// signals returns a context that ends when somebody asks for a restart, by Ctrl-Alt-Del or by SIGINT or SIGTERM, or for
// power off, by SIGUSR2; the machine is then stopped in order.
func (b *boot) signals(ctx context.Context) context.Context {
	// Without this the kernel restarts at once, with nothing written out; with it Ctrl-Alt-Del is SIGINT.
	if err := unix.Reboot(unix.LINUX_REBOOT_CMD_CAD_OFF); err != nil {
		b.log.Warn("Ctrl-Alt-Del", "err", err)
	}
	// SIGQUIT would end this process, and with it the kernel: the Go runtime has a handler for it.
	signal.Ignore(unix.SIGHUP, unix.SIGPIPE, unix.SIGTTIN, unix.SIGTTOU, unix.SIGQUIT)
	asked := make(chan os.Signal, 1)
	signal.Notify(asked, unix.SIGINT, unix.SIGTERM, unix.SIGUSR2)
	ctx, cancel := context.WithCancel(ctx)
	b.spawnGuarded(func() {
		which := <-asked
		b.console.Plain()
		b.log.Info("asked to stop", "signal", which.String())
		cancel()
		machine := power.Machine{Log: b.log, Flush: b.flush}
		stop := machine.Reboot
		if which == unix.SIGUSR2 {
			stop = machine.PowerOff
		}
		b.console.Flush(stopTime)
		b.log.Error("not stopped", "err", stop(context.Background()))
		b.die("stop failed")
	})
	return ctx
}
