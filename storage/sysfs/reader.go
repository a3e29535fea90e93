// Package sysfs reads files of sysfs and procfs below a [Root], which functions of other packages have as an argument.
// The zero value of Root is the running machine, so that programs pass sysfs.Root{}. Tests, and programs that read a
// copy of a machine's files, set its Path to a directory with sys, dev and proc. Devices keep their paths below /dev:
// functions that open disks open the disks of the running machine.
//
// The driver behind a file can hang, or fail if its hardware is suspended or broken. Reads are limited in time, also by
// the zero value. With a [Reader], a file that hangs is not read again, and each failing file is logged once.
package sysfs

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"ironroot/internal/goroutine"
)

const (
	// Limit is the default time limit of a read.
	Limit = 2 * time.Second
	// maxSize limits the bytes that are read of one file.
	maxSize = 4 << 20
)

// ErrHangs is the error of a file that was not read within its time limit, now or in an earlier call whose read has not
// ended yet.
var ErrHangs = errors.New("does not answer")

// Reader reads files. The zero value is ready to use. A nil Reader reads files too, but remembers and logs nothing. A
// Reader is safe for concurrent use.
type Reader struct {
	// Log gets one warning for each file that hangs or fails; nil discards them. A file that does not exist, or whose
	// error means that the device lacks the property, is not a failure.
	Log *slog.Logger
	// Limit is the time limit of a read; 0 means the constant Limit.
	Limit time.Duration

	mu sync.Mutex
	// hung has files whose reads have not ended, with the answers to come. They are not read again before that, because
	// every attempt would block a thread.
	hung   map[string]<-chan content
	slow   map[string]bool // directories of these files; other files in them have the same driver and a tenth of Limit
	warned map[string]bool // files that were logged
}

type content struct {
	data []byte
	err  error
}

// Read returns the content of a file, at most 4 MiB of it. The error is an *fs.PathError, which wraps ErrHangs if the
// read did not end within the time limit.
func (r *Reader) Read(path string) ([]byte, error) {
	if r == nil {
		data, _, err := read(path, Limit)
		return data, err
	}
	hung, slow := r.hangs(path)
	if hung {
		return nil, &fs.PathError{Op: "read", Path: path, Err: ErrHangs}
	}
	limit := cmp.Or(r.Limit, Limit)
	if slow {
		limit /= 10
	}
	data, late, err := read(path, limit)
	if err != nil {
		r.failed(path, late, err)
	}
	return data, err
}

// hangs reports whether an earlier read of a file has not ended yet, and whether its driver is slow. A read that ended
// late was delayed by a busy machine or by a driver that answers again, so that the file can be read again.
func (r *Reader) hangs(path string) (hung, slow bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	dir := filepath.Dir(path)
	if answer := r.hung[path]; answer != nil {
		select {
		case <-answer:
			delete(r.hung, path)
			delete(r.slow, dir)
		default:
			return true, true
		}
	}
	return false, r.slow[dir]
}

// read reads a file within limit. With an error that wraps ErrHangs it returns the answer to come.
func read(path string, limit time.Duration) ([]byte, <-chan content, error) {
	answer := make(chan content, 1)
	var data []byte
	goroutine.Go(func() (err error) {
		data, err = readAll(path)
		return err
	}, func(err error) { answer <- content{data, err} })
	timer := time.NewTimer(limit)
	defer timer.Stop()
	select {
	case c := <-answer:
		return c.data, nil, c.err
	case <-timer.C:
		return nil, answer, &fs.PathError{Op: "read", Path: path, Err: fmt.Errorf("%w within %v", ErrHangs, limit)}
	}
}

// absent are the errors that drivers return for a property that does not exist, or not at present: an interface is
// down, a device was removed, or the hardware does not implement a command.
var absent = []error{
	fs.ErrNotExist, unix.ENODEV, unix.ENXIO, unix.EINVAL, unix.EOPNOTSUPP, unix.ENODATA, unix.ENOTDIR, unix.EISDIR,
}

// IsAbsent reports whether the error of a read means that the device does not have the property.
func IsAbsent(err error) bool {
	return slices.ContainsFunc(absent, func(e error) bool { return errors.Is(err, e) })
}

// failed remembers a file that hangs, and logs the failure once.
func (r *Reader) failed(path string, late <-chan content, err error) {
	if IsAbsent(err) {
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.hung == nil {
		r.hung = map[string]<-chan content{}
		r.slow, r.warned = map[string]bool{}, map[string]bool{}
	}
	if errors.Is(err, ErrHangs) {
		r.hung[path], r.slow[filepath.Dir(path)] = late, true
	}
	if r.Log != nil && !r.warned[path] {
		r.Log.Warn("file not readable", "err", err)
	}
	r.warned[path] = true
}

// readAll does not use package os, which waits after EAGAIN until the file is readable. In sysfs, EAGAIN means that
// the driver has no value.
func readAll(path string) ([]byte, error) {
	fd, err := unix.Open(path, unix.O_RDONLY|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, &fs.PathError{Op: "open", Path: path, Err: err}
	}
	defer unix.Close(fd) //nolint:errcheck // only read
	return readFD(fd, path)
}

func readFD(fd int, path string) ([]byte, error) {
	var data []byte
	buffer := make([]byte, os.Getpagesize())
	for len(data) < maxSize {
		n, err := unix.Read(fd, buffer)
		if errors.Is(err, unix.EINTR) {
			continue
		}
		if err != nil {
			return nil, &fs.PathError{Op: "read", Path: path, Err: err}
		}
		if n == 0 {
			break
		}
		data = append(data, buffer[:n]...)
	}
	return data, nil
}

// Each calls f for every item, up to 64 of them concurrently because a file may block, and returns the results in the
// order of the items. If f panics, Each panics with a *goroutine.PanicError.
func Each[T, R any](items []T, f func(T) R) []R {
	const limit = 64
	results := make([]R, len(items))
	group := goroutine.NewGroup()
	group.SetLimit(limit)
	for i, item := range items {
		group.Go(func() error {
			results[i] = f(item)
			return nil
		})
	}
	if err := group.Wait(); err != nil {
		panic(err)
	}
	return results
}
