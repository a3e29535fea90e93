//go:build linux

package worker

import (
	"bufio"
	"context"
	"crypto/fips140"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"ironroot/internal/confine"
	"ironroot/internal/goroutine"
	"ironroot/internal/pause"
)

// Spec describes a worker.
type Spec struct {
	Name  string       // the first argument of the worker, by which it recognizes its task
	Input []byte       // its standard input; it can contain secrets
	Files []*os.File   // its descriptors from 3 on
	Log   *slog.Logger // gets its log lines
}

const (
	// stopTime limits the time in which the kernel must end all processes of a worker.
	stopTime = 30 * time.Second
	// shortestPause and longestPause are the pauses before a worker is started again.
	shortestPause, longestPause = time.Second, time.Minute
	// settled is the time for which a worker must have run for the pause to be the shortest again.
	settled = time.Minute
)

// Keep runs a worker, and again whenever it ends, until ctx ends. It then ends the worker and all processes that it has
// started. If the kernel does not end one of them, the error wraps [confine.ErrStillRunning].
func Keep(ctx context.Context, s Spec) error { return keep(ctx, s, stopTime, membersFlags()) }

// keep is like Keep, with another limit of the time in which all processes must end, and with flags of clone(2) for
// supervisors.
func keep(ctx context.Context, s Spec, stopTime time.Duration, flags uintptr) error {
	wait := shortestPause
	for {
		start := time.Now()
		err := run(ctx, s, stopTime, flags)
		if ctx.Err() != nil {
			return err
		}
		if time.Since(start) > settled {
			wait = shortestPause
		}
		s.Log.Error("worker ended, restarting", "worker", s.Name, "pause", wait, "err", err)
		_ = pause.For(ctx, wait) // run checks ctx
		wait = min(2*wait, longestPause)
	}
}

// errEnded is the error of a worker that has ended without one.
var errEnded = errors.New("exit status 0")

// run runs a worker until it ends, which is always an error, or ctx ends.
func run(ctx context.Context, s Spec, stopTime time.Duration, flags uintptr) (err error) {
	if pause.Closed(ctx.Done()) {
		return nil
	}
	defer func() {
		if err != nil {
			err = fmt.Errorf("%s: %w", s.Name, err)
		}
	}()
	input, err := inMemory(s.Input)
	if err != nil {
		return err
	}
	defer input.Close() //nolint:errcheck // the process has its own
	lifeIn, life, err := os.Pipe()
	if err != nil {
		return err
	}
	defer lifeIn.Close() //nolint:errcheck // the process has its own
	defer life.Close()   //nolint:errcheck // nothing is written
	lines, linesOut, err := os.Pipe()
	if err != nil {
		return err
	}
	defer linesOut.Close() //nolint:errcheck // the process has its own
	defer lines.Close()    //nolint:errcheck // only read
	process, err := os.StartProcess("/proc/self/exe", []string{supervisorName, s.Name}, &os.ProcAttr{
		Dir: "/", Env: environment(), Files: append([]*os.File{lifeIn, linesOut, os.Stderr, input}, s.Files...),
		Sys: &syscall.SysProcAttr{Cloneflags: flags},
	})
	if err != nil {
		return err
	}
	// It fails if the supervisor has ended already, or if the kernel lacks IPC namespaces: see membersFlags.
	processes, membersErr := membersOf(process.Pid)
	if membersErr != nil && !hasEnded(process.Pid) {
		s.Log.Warn("processes of a worker cannot be recognized: some are left if its supervisor is killed",
			"worker", s.Name, "err", membersErr)
	}
	_ = lifeIn.Close() // the process has its own
	_ = linesOut.Close()
	read := make(chan error, 1)
	goroutine.Go(func() error { return copyLines(s.Log, bufio.NewReaderSize(lines, maxLine)) },
		func(err error) { read <- err })
	err = confine.Await(ctx, stopTime, func() error {
		state, err := process.Wait()
		switch {
		case err != nil:
			return err
		case !state.Success():
			return errors.New(state.String())
		}
		return errEnded
	}, life.Close)
	if membersErr == nil { // nothing is left unless the supervisor was killed, or is stuck
		killErr := processes.kill(stopTime)
		if killErr == nil && errors.Is(err, confine.ErrStillRunning) {
			err = errEnded
		}
		err = errors.Join(err, killErr, processes.close())
	}
	if errors.Is(err, confine.ErrStillRunning) {
		_ = lines.SetReadDeadline(time.Now()) // a process keeps the other end open
	}
	if lineErr := <-read; lineErr != nil && !errors.Is(err, confine.ErrStillRunning) {
		s.Log.Warn("log lines of a worker not read", "worker", s.Name, "err", lineErr)
	}
	if ctx.Err() != nil && !errors.Is(err, confine.ErrStillRunning) {
		return nil
	}
	return err
}

// environment returns the environment of a worker, which has the FIPS 140-3 mode of this process.
func environment() []string {
	if fips140.Enabled() {
		return []string{"GODEBUG=fips140=on"}
	}
	return []string{}
}

// inMemory returns an open file with this content, which is nowhere in the file system.
func inMemory(content []byte) (*os.File, error) {
	fd, err := unix.MemfdCreate("input", unix.MFD_CLOEXEC)
	if err != nil {
		return nil, fmt.Errorf("create file in memory: %w", err)
	}
	f := os.NewFile(uintptr(fd), "input")
	if _, err := f.Write(content); err != nil {
		return nil, errors.Join(err, f.Close())
	}
	if _, err := f.Seek(0, io.SeekStart); err != nil {
		return nil, errors.Join(err, f.Close())
	}
	return f, nil
}
