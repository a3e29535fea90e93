// Package sysfile reads files of sysfs and procfs. Behind such a file is a driver, which may hang, or fail while its hardware
// sleeps or is broken; neither must hold up the reader, and what the machine does not tell for such a reason is logged.
package sysfile

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"ironroot/internal/goroutine"
)

const (
	// Limit is how long a file is waited for, unless a Reader says otherwise.
	Limit = 2 * time.Second
	// maxSize is how many bytes of a file are read.
	maxSize = 4 << 20
)

// ErrHangs says that a file was not read in time, now or before.
var ErrHangs = errors.New("does not answer")

// Reader reads files. The zero value is ready, and so is nil, which remembers and logs nothing; a Reader is safe for
// concurrent use.
type Reader struct {
	// Log gets one warning for each file that hangs or fails; nil discards them. That a file does not exist, or says by its
	// error that the device has no such property, is no failure.
	Log *slog.Logger
	// Limit is how long a file is waited for; 0 means the constant of that name.
	Limit time.Duration

	mu     sync.Mutex
	hung   map[string]bool // files; one that hung once is not tried again: every try would cost a thread
	slow   map[string]bool // their folders; files beside one that hung belong to the same driver and get a tenth of the time
	warned map[string]bool // files
}

type content struct {
	data []byte
	err  error
}

// Read returns the content of a file, at most 4 MiB of it. The error is an *fs.PathError; it wraps ErrHangs when nothing
// came in time.
func (r *Reader) Read(path string) ([]byte, error) {
	if r == nil {
		return read(path, Limit)
	}
	r.mu.Lock()
	hung, slow := r.hung[path], r.slow[filepath.Dir(path)]
	r.mu.Unlock()
	if hung {
		return nil, &fs.PathError{Op: "read", Path: path, Err: ErrHangs}
	}
	limit := cmp.Or(r.Limit, Limit)
	if slow {
		limit /= 10
	}
	data, err := read(path, limit)
	if err != nil {
		r.failed(path, err)
	}
	return data, err
}

// read waits for a file, though not for long.
func read(path string, limit time.Duration) ([]byte, error) {
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
		return c.data, c.err
	case <-timer.C:
		return nil, &fs.PathError{Op: "read", Path: path, Err: fmt.Errorf("%w within %v", ErrHangs, limit)}
	}
}

// absent are the errors by which drivers say that there is no such property, or none now: an interface that is down, a
// device that is gone, a command that the hardware does not know.
var absent = []error{
	fs.ErrNotExist, unix.ENODEV, unix.ENXIO, unix.EINVAL, unix.EOPNOTSUPP, unix.ENODATA, unix.ENOTDIR, unix.EISDIR,
}

// failed remembers a file that hangs, and logs the failure once.
func (r *Reader) failed(path string, err error) {
	for _, e := range absent {
		if errors.Is(err, e) {
			return
		}
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.hung == nil {
		r.hung, r.slow, r.warned = map[string]bool{}, map[string]bool{}, map[string]bool{}
	}
	if errors.Is(err, ErrHangs) {
		r.hung[path], r.slow[filepath.Dir(path)] = true, true
	}
	if r.Log != nil && !r.warned[path] {
		r.Log.Warn("the machine does not tell a fact", "err", err)
	}
	r.warned[path] = true
}

// readAll goes past package os, which takes EAGAIN for a promise that the file will be readable later and waits for that,
// while sysfs means that the driver cannot answer.
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

// Each calls f for every item, up to 64 at a time because a file may block, and returns the results in the order of
// the items. If f panics, so does Each, with a *goroutine.PanicError.
func Each[T, R any](items []T, f func(T) R) []R {
	const most = 64
	results := make([]R, len(items))
	group := goroutine.NewGroup()
	group.SetLimit(most)
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
