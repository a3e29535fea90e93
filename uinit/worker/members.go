//go:build linux

package worker

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"time"

	"golang.org/x/sys/unix"

	"ironroot/internal/confine"
)

// members are the processes of a worker: all that are in the IPC namespace in which its supervisor was started. New
// processes inherit the namespace. Nothing else of the machine is different in it.
type members struct {
	namespace *os.File // keeps the kernel from reusing the namespace's number
	self      fs.FileInfo
}

// membersFlags returns the flags of clone(2) that start a process in an IPC namespace of its own, none if the kernel
// lacks these namespaces.
func membersFlags() uintptr {
	if _, err := os.Stat(namespaceOf("self")); err != nil {
		return 0
	}
	return unix.CLONE_NEWIPC
}

// membersOf returns the processes in the IPC namespace of a process.
func membersOf(pid int) (*members, error) {
	f, err := os.Open(namespaceOf(strconv.Itoa(pid)))
	if err != nil {
		return nil, err
	}
	m := &members{namespace: f}
	if m.self, err = f.Stat(); err != nil {
		return nil, errors.Join(err, f.Close())
	}
	if m.has("self") {
		return nil, errors.Join(errors.New("no IPC namespace of its own"), f.Close())
	}
	return m, nil
}

// hasEnded reports whether a child, for which nothing has waited yet, has ended.
func hasEnded(pid int) bool {
	var info unix.Siginfo
	err := unix.Waitid(unix.P_PID, pid, &info, unix.WEXITED|unix.WNOHANG|unix.WNOWAIT, nil)
	return err == nil && info.Signo != 0 // 0: its state has not changed
}

func namespaceOf(pid string) string { return filepath.Join("/proc", pid, "ns/ipc") }

// killPause is the pause before processes that were killed are looked for again. The kernel reports only the end of
// children.
const killPause = 10 * time.Millisecond

// kill kills all members until none is left. If some are left after limit, the error wraps
// [confine.ErrStillRunning].
func (m *members) kill(limit time.Duration) error {
	const passes = 2 // without a member: one could have been started while the first one listed the processes
	end := time.Now().Add(limit)
	for empty := 0; empty < passes; {
		left, err := m.signal(unix.SIGKILL)
		switch {
		case err != nil:
			return err
		case len(left) == 0:
			empty++
			continue
		case time.Now().After(end):
			return fmt.Errorf("processes %v: %w", left, confine.ErrStillRunning)
		}
		empty = 0
		time.Sleep(killPause)
	}
	return nil
}

// signal sends a signal to all members, and returns their numbers. Processes that have ended have no namespace.
func (m *members) signal(signal unix.Signal) ([]int, error) {
	entries, err := os.ReadDir("/proc")
	if err != nil {
		return nil, err
	}
	var found []int
	for _, entry := range entries {
		pid, err := strconv.Atoi(entry.Name())
		if err != nil || !m.has(entry.Name()) {
			continue
		}
		handle, err := unix.PidfdOpen(pid, 0)
		if err != nil {
			continue // it has ended
		}
		if m.has(entry.Name()) { // the number does not belong to another process by now
			found = append(found, pid)
			_ = unix.PidfdSendSignal(handle, signal, nil, 0) // fails only if it has ended
		}
		if err := unix.Close(handle); err != nil {
			return nil, err
		}
	}
	return found, nil
}

// has reports whether a process is a member.
func (m *members) has(pid string) bool {
	info, err := os.Stat(namespaceOf(pid))
	return err == nil && os.SameFile(info, m.self)
}

func (m *members) close() error { return m.namespace.Close() }
