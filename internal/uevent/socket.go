package uevent

import (
	"context"
	"errors"
	"fmt"
	"os"
	"time"

	"golang.org/x/sys/unix"

	"ironroot/internal/goroutine"
)

const (
	kernelGroup = 1        // multicast group of the kernel; udev sends to group 2
	maxMessage  = 16 << 10 // bytes; the kernel's messages have 2 KiB of fields and a path
)

// ErrLost is the error of Next if the kernel dropped messages because the queue was full.
var ErrLost = errors.New("messages were lost")

// Socket receives messages. It is not safe for concurrent use.
type Socket struct {
	file   *os.File
	buffer [maxMessage]byte
}

// Listen opens a socket. Messages are queued from then on: up to queue bytes of the kernel's memory, or the system's
// default if queue is 0 or the process lacks CAP_NET_ADMIN.
func Listen(queue int) (*Socket, error) {
	fd, err := openSocket(queue)
	if err != nil {
		return nil, err
	}
	return &Socket{file: os.NewFile(uintptr(fd), "uevents")}, nil
}

// Next waits for a message. If ctx ends first, it returns the cause, and later calls of Next fail. A context that ends
// while Next returns a message has the same effect on later calls.
func (s *Socket) Next(ctx context.Context) (Event, error) {
	stop := goroutine.AfterContext(ctx, func() { _ = s.file.SetReadDeadline(time.Unix(1, 0)) })
	defer stop()
	n, err := s.file.Read(s.buffer[:])
	switch {
	case ctx.Err() != nil:
		return Event{}, context.Cause(ctx)
	case errors.Is(err, unix.ENOBUFS):
		return Event{}, ErrLost
	case err != nil:
		return Event{}, fmt.Errorf("read uevent: %w", err)
	}
	return Parse(s.buffer[:n]), nil
}

// Drain discards the messages that are queued. It does not wait, so it also works after the context of Next has ended.
func (s *Socket) Drain() error {
	conn, err := s.file.SyscallConn()
	if err != nil {
		return fmt.Errorf("read uevent: %w", err)
	}
	return conn.Control(func(fd uintptr) { // Read would fail after the deadline that the end of a context sets
		for {
			if _, _, err := unix.Recvfrom(int(fd), s.buffer[:], unix.MSG_DONTWAIT); err != nil {
				return // nothing is left; Next reports other errors
			}
		}
	})
}

// Close closes the socket.
func (s *Socket) Close() error { return s.file.Close() }
