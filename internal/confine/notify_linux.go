package confine

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"syscall"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"

	"ironroot/internal/goroutine"
)

// Notification is a call that waits for a reply: struct seccomp_notif.
type Notification struct {
	ID    uint64
	PID   uint32 // of the thread
	Flags uint32
	Call  int32
	Arch  uint32 // AUDIT_ARCH_*
	IP    uint64
	Args  [6]uint64
}

// response is struct seccomp_notif_resp.
type response struct {
	ID    uint64
	Value int64
	Error int32
	Flags uint32
}

// A Decider decides calls that wait for a reply.
type Decider interface {
	// Decide returns nil if the call succeeds. Otherwise the call fails with the errno that the error wraps, or EPERM.
	// An error that wraps ErrStillRunning leaves the call without a reply.
	Decide(ctx context.Context, l Listener, n Notification) error
}

// Listener receives the calls that wait for a reply. It ends with the last process whose calls it receives.
type Listener struct{ conn syscall.RawConn }

// CheckWaiting returns an error if the caller no longer waits for the reply. Until then, the kernel does not reuse the
// number of its process.
func (l Listener) CheckWaiting(n Notification) error {
	var errno unix.Errno
	err := l.conn.Control(func(fd uintptr) {
		errno = notifyIoctl(fd, unix.SECCOMP_IOCTL_NOTIF_ID_VALID, unsafe.Pointer(&n.ID))
	})
	if err == nil && errno != 0 {
		return errno
	}
	return err
}

func notifyIoctl(fd, command uintptr, argument unsafe.Pointer) unix.Errno {
	_, _, errno := unix.Syscall(unix.SYS_IOCTL, fd, command, uintptr(argument))
	return errno
}

// Serve receives the calls of a listener and replies to them as the decider says. The listener must be non-blocking. It
// returns when ctx or the last process has ended, or with an error that wraps ErrStillRunning from the decider.
func Serve(ctx context.Context, listener *os.File, d Decider) error {
	conn, err := listener.SyscallConn()
	if err != nil {
		return err
	}
	// A process that the kernel does not end keeps the listener open.
	stop := goroutine.AfterContext(ctx, func() { _ = listener.SetReadDeadline(time.Now()) })
	defer stop()
	for {
		n, err := receive(conn)
		switch {
		case errors.Is(err, os.ErrDeadlineExceeded), errors.Is(err, io.EOF):
			return nil
		case errors.Is(err, unix.ENOENT), errors.Is(err, unix.EINTR):
			continue // the process ended
		case err != nil:
			return fmt.Errorf("receive system call: %w", err)
		}
		r := response{ID: n.ID}
		err = d.Decide(ctx, Listener{conn}, n)
		if err != nil {
			errno := unix.EPERM
			_ = errors.As(err, &errno)
			r.Error = -int32(errno)
		}
		if errors.Is(err, ErrStillRunning) {
			return err
		}
		err = conn.Control(func(fd uintptr) { // fails if the process has ended
			_ = notifyIoctl(fd, unix.SECCOMP_IOCTL_NOTIF_SEND, unsafe.Pointer(&r))
		})
		if err != nil {
			return err
		}
	}
}

// receive waits for a call. After the end of the last process the error is [io.EOF].
func receive(conn syscall.RawConn) (n Notification, err error) {
	var failure error
	err = conn.Read(func(fd uintptr) bool {
		list := []unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}}
		ready, err := unix.Poll(list, 0)
		switch {
		case err != nil || ready == 0:
			return false
		case list[0].Revents&unix.POLLIN == 0: // the last process has ended
			failure = io.EOF
		default:
			if errno := notifyIoctl(fd, unix.SECCOMP_IOCTL_NOTIF_RECV, unsafe.Pointer(&n)); errno != 0 {
				failure = errno
			}
		}
		return true
	})
	return n, errors.Join(err, failure)
}

// Denials is a [Decider] by which all calls fail. It logs each call once by its name. It is not safe for concurrent
// use.
type Denials struct {
	log    *slog.Logger
	logged map[string]bool // by architecture and name
}

// NewDenials returns a Denials.
func NewDenials(log *slog.Logger) *Denials { return &Denials{log: log, logged: map[string]bool{}} }

// Decide implements [Decider]. Calls that newer kernels have, and missingCalls, fail with ENOSYS, others with EPERM.
func (d *Denials) Decide(_ context.Context, _ Listener, n Notification) error {
	call, architecture := CallName(n.Arch, n.Call)
	errno := errnoOf(call)
	if key := architecture + call; !d.logged[key] { // unknown calls are one
		d.logged[key] = true
		command, _ := os.ReadFile(fmt.Sprintf("/proc/%d/comm", n.PID)) // empty if the process has ended
		d.log.Warn("system call not permitted", "call", cmp.Or(call, fmt.Sprint(n.Call)), "arch", architecture,
			"program", string(bytes.TrimSpace(command)), "err", errno)
	}
	return errno
}

// ApplyAndSend applies the policy, sends its listener through the socket from [NewDenialSocket], and closes the socket.
func (p Policy) ApplyAndSend(socket int) error {
	listener, err := p.Apply()
	if err != nil {
		return err
	}
	err = unix.Sendmsg(socket, []byte{0}, unix.UnixRights(listener), nil, unix.MSG_NOSIGNAL)
	if err = errors.Join(err, unix.Close(listener), unix.Close(socket)); err != nil {
		return fmt.Errorf("send listener of system calls: %w", err)
	}
	return nil
}

// serveDenials receives a listener from a socket, and serves it by a Denials. It returns at once if the process ends
// without a listener.
func serveDenials(socket *os.File) error {
	defer socket.Close() //nolint:errcheck // only read
	conn, err := socket.SyscallConn()
	if err != nil {
		return err
	}
	rights := make([]byte, unix.CmsgSpace(4))
	var read, size int
	var failure error
	err = conn.Read(func(fd uintptr) bool {
		read, size, _, _, failure = unix.Recvmsg(int(fd), make([]byte, 1), rights, unix.MSG_CMSG_CLOEXEC)
		return !errors.Is(failure, unix.EAGAIN)
	})
	if err := errors.Join(err, failure); err != nil {
		return fmt.Errorf("receive listener of system calls: %w", err)
	}
	if read == 0 {
		return nil // the process has ended
	}
	listener, err := ParseListener(rights[:size])
	if err != nil {
		return err
	}
	if listener == nil {
		return errors.New("receive listener of system calls: message without a descriptor")
	}
	defer listener.Close() //nolint:errcheck // the processes have ended
	return Serve(context.Background(), listener, NewDenials(slog.Default()))
}

// ParseListener returns the listener in a control message of a socket, nil if there is none. The listener is
// non-blocking.
func ParseListener(control []byte) (listener *os.File, err error) {
	messages, err := unix.ParseSocketControlMessage(control)
	if err != nil {
		return nil, err
	}
	var files []int
	for i := range messages {
		if fds, err := unix.ParseUnixRights(&messages[i]); err == nil {
			files = append(files, fds...)
		}
	}
	if len(files) == 0 {
		return nil, nil
	}
	for _, fd := range files[1:] {
		_ = unix.Close(fd) // a sender has one
	}
	if err := unix.SetNonblock(files[0], true); err != nil { // so that the runtime can wait for it
		return nil, errors.Join(err, unix.Close(files[0]))
	}
	return os.NewFile(uintptr(files[0]), "listener of system calls"), nil
}

// NewDenialSocket returns a socket for a process that calls ApplyAndSend. In this process, a goroutine lets the calls
// that are not permitted fail, and logs them to [slog.Default], see [Denials]. The caller closes the socket after it
// has started the process.
func NewDenialSocket() (theirs *os.File, err error) {
	fds, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_SEQPACKET|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, 0)
	if err != nil {
		return nil, fmt.Errorf("make sockets: %w", err)
	}
	ours := os.NewFile(uintptr(fds[0]), "listener of system calls")
	goroutine.Go(func() error { return serveDenials(ours) }, func(err error) {
		if err != nil {
			slog.Error("system calls of a program not logged", "err", err)
		}
	})
	return os.NewFile(uintptr(fds[1]), "listener of system calls"), nil
}
