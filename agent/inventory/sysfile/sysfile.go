// Package sysfile reads files of sysfs and procfs. Behind such a file is a driver, which may hang, or fail with EAGAIN;
// neither must hold up the reader.
package sysfile

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"sync"
	"time"

	"golang.org/x/sys/unix"
)

const (
	// Limit is how long a file is waited for.
	Limit = 2 * time.Second
	// maxSize is how many bytes of a file are read.
	maxSize = 4 << 20
)

// ErrHangs says that a file was not read in time, now or before.
var ErrHangs = errors.New("does not answer")

// Reader reads files. The zero value is ready; it is safe for concurrent use.
type Reader struct {
	mu   sync.Mutex
	hung map[string]bool // a file that hung once is not tried again: every try would cost a thread
}

type content struct {
	data []byte
	err  error
}

// Read returns the content of a file, at most 4 MiB of it. The error is an *fs.PathError; it wraps ErrHangs when nothing
// came within Limit.
func (r *Reader) Read(path string) ([]byte, error) {
	r.mu.Lock()
	hung := r.hung[path]
	r.mu.Unlock()
	if hung {
		return nil, &fs.PathError{Op: "read", Path: path, Err: ErrHangs}
	}
	answer := make(chan content, 1)
	go func() {
		data, err := readAll(path)
		answer <- content{data, err}
	}()
	timer := time.NewTimer(Limit)
	defer timer.Stop()
	select {
	case c := <-answer:
		return c.data, c.err
	case <-timer.C:
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.hung == nil {
		r.hung = map[string]bool{}
	}
	r.hung[path] = true
	return nil, &fs.PathError{Op: "read", Path: path, Err: fmt.Errorf("%w within %v", ErrHangs, Limit)}
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
