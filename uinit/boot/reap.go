//go:build linux

package boot

import (
	"context"
	"errors"
	"log/slog"
	"os"
	"os/signal"

	"golang.org/x/sys/unix"
)

// reap reaps orphans until ctx ends: processes whose parent died and whose new parent is process 1.
//
// It must not reap the children that this process started itself, because their starter waits for them. The kernel
// distinguishes them by thread: orphans become children of the main thread, which starts no process because it is
// reserved for this function. With __WNOTHREAD, wait4(2) returns only the children of the calling thread.
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

// reapAll reaps all orphans that have ended. It must run on the main thread.
func reapAll(log *slog.Logger) {
	for {
		var status unix.WaitStatus
		pid, err := unix.Wait4(-1, &status, unix.WNOHANG|unix.WALL|unix.WNOTHREAD, nil)
		switch {
		case errors.Is(err, unix.EINTR):
		case err != nil || pid == 0: // ECHILD: no children; 0: none has ended
			return
		default:
			log.Debug("orphan ended", "pid", pid, "status", status.ExitStatus(), "signal", status.Signal())
		}
	}
}
