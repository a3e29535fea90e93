//go:build linux

package worker

import (
	"errors"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"runtime"
	"strconv"
	"syscall"

	"golang.org/x/sys/unix"

	"ironroot/internal/goroutine"
	"ironroot/storage/sysfs"
)

// supervisorName is the name of this program in the process that supervises a worker.
const supervisorName = "supervisor"

// Descriptors of the supervisor. The worker's own files follow the input.
const (
	lifeFile  = 0 // a pipe that process 1 closes to end the worker
	inputFile = 3
)

// exitFailed is the exit status of a supervisor that could not do its work.
const exitFailed = 120

// Child does the work of a supervisor and ends, if this process was started as one. Otherwise it returns. Every program
// that runs workers must call it first, from the main goroutine.
func Child() {
	if os.Args[0] != supervisorName || len(os.Args) != 2 {
		return
	}
	runtime.LockOSThread() // the worker's parent death signal belongs to this thread
	status, err := supervise(os.Args[1])
	if err != nil {
		_, _ = os.Stderr.WriteString(supervisorName + ": " + err.Error() + "\n")
		os.Exit(exitFailed)
	}
	os.Exit(status)
}

// CatchSignals makes this process ignore all signals that it can. They have their default effect in the programs that
// it starts, unlike signals of [signal.Ignore], and signals that process 1 ignores.
func CatchSignals() { signal.Notify(make(chan os.Signal, 1)) }

// supervise runs the worker and returns its exit status when none of its processes is left.
func supervise(name string) (int, error) {
	CatchSignals()
	if err := unix.Prctl(unix.PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0); err != nil {
		return 0, fmt.Errorf("become subreaper: %w", err)
	}
	if err := unix.SetNonblock(lifeFile, false); err != nil {
		return 0, fmt.Errorf("wait on pipe: %w", err)
	}
	pid, handle, err := start(name)
	if err != nil {
		return 0, err
	}
	goroutine.Go(func() error {
		var b [1]byte
		for { // until process 1 closes the pipe, or has ended
			if n, err := unix.Read(lifeFile, b[:]); n <= 0 && !errors.Is(err, unix.EINTR) {
				break
			}
		}
		_ = unix.PidfdSendSignal(handle, unix.SIGKILL, nil, 0) // fails only if it has ended
		return nil
	}, nil)
	status, err := await(pid)
	return status, errors.Join(err, killAll())
}

// start starts the worker. It returns its number and a descriptor of the process.
func start(name string) (pid, handle int, err error) {
	files := []*os.File{os.NewFile(inputFile, "input"), os.Stdout, os.Stderr}
	for fd := inputFile + 1; isOpen(fd); fd++ {
		files = append(files, os.NewFile(uintptr(fd), strconv.Itoa(fd)))
	}
	handle = -1
	process, err := os.StartProcess("/proc/self/exe", []string{name}, &os.ProcAttr{
		Dir: "/", Env: environment(), Files: files,
		Sys: &syscall.SysProcAttr{Pdeathsig: unix.SIGKILL, PidFD: &handle},
	})
	if err != nil {
		return 0, 0, fmt.Errorf("start %s: %w", name, err)
	}
	for _, f := range files {
		if f != os.Stderr {
			err = errors.Join(err, f.Close()) // process 1 waits for the end of the output, and listeners must close
		}
	}
	if handle < 0 {
		err = errors.Join(err, errors.New("the kernel has no process descriptors"))
	}
	pid = process.Pid
	return pid, handle, errors.Join(err, process.Release()) // all children are waited for together
}

// isOpen reports whether a descriptor is one that this process was started with. The Go runtime's own close at exec.
func isOpen(fd int) bool {
	flags, err := unix.FcntlInt(uintptr(fd), unix.F_GETFD, 0)
	return err == nil && flags&unix.FD_CLOEXEC == 0
}

// await waits for the worker, and for orphans until then. It returns the worker's exit status.
func await(pid int) (int, error) {
	for {
		var status unix.WaitStatus
		ended, err := unix.Wait4(-1, &status, 0, nil)
		switch {
		case errors.Is(err, unix.EINTR):
		case err != nil:
			return 0, fmt.Errorf("wait: %w", err)
		case ended == pid && status.Signaled():
			const signalBase = 128 // as shells do
			return signalBase + int(status.Signal()), nil
		case ended == pid:
			return status.ExitStatus(), nil
		}
	}
}

// killAll kills all children, and their children, which then become children of this process, until none is left.
func killAll() error {
	for {
		children, err := childrenOf(os.Getpid())
		if err != nil {
			return err
		}
		for _, pid := range children {
			_ = unix.Kill(pid, unix.SIGKILL) // fails only if it has ended
		}
		flags := 0 // waits for the first only
		for {
			pid, err := unix.Wait4(-1, nil, flags, nil)
			if errors.Is(err, unix.EINTR) {
				continue
			}
			if errors.Is(err, unix.ECHILD) {
				return nil
			}
			if err != nil {
				return fmt.Errorf("wait: %w", err)
			}
			if pid == 0 {
				break // none has ended; others can have become children
			}
			flags = unix.WNOHANG
		}
	}
}

// childrenOf returns the numbers of the children of a process.
func childrenOf(parent int) ([]int, error) {
	names, err := filepath.Glob("/proc/[0-9]*/stat")
	if err != nil {
		return nil, err
	}
	var children []int
	for _, name := range names {
		stat, err := os.ReadFile(name)
		if err != nil {
			continue // it has ended
		}
		process, err := sysfs.ParseProcess(stat)
		if err == nil && process.Parent == parent { // an error must not keep the other children alive
			children = append(children, process.PID)
		}
	}
	return children, nil
}
