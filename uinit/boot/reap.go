package boot

import (
	"context"
	"errors"
	"log/slog"
	"os"
	"os/signal"

	"golang.org/x/sys/unix"
)

// reap takes the status of orphans until ctx ends: processes whose parent died, which the kernel gives to process 1.
//
// Children that this process itself started belong to whoever started them: taking their status away would break that
// one's Wait. The kernel knows the difference by thread. It gives orphans to the main thread; and the main thread is
// reserved for this function, so nothing else is ever started from it. With __WNOTHREAD only its own children count.
func reap(ctx context.Context, log *slog.Logger) {
	ended := make(chan os.Signal, 1)
	signal.Notify(ended, unix.SIGCHLD)
	defer signal.Stop(ended)
	for {
		reapAll(log)
		select {
		case <-ended:
		case <-ctx.Done():
			return
		}
	}
}

// reapAll takes all statuses there are. It must run on the main thread.
func reapAll(log *slog.Logger) {
	for {
		var status unix.WaitStatus
		pid, err := unix.Wait4(-1, &status, unix.WNOHANG|unix.WALL|unix.WNOTHREAD, nil)
		switch {
		case errors.Is(err, unix.EINTR):
		case err != nil || pid == 0: // ECHILD: none at all; 0: none that ended
			return
		default:
			log.Debug("orphan ended", "pid", pid, "status", status.ExitStatus(), "signal", status.Signal())
		}
	}
}
