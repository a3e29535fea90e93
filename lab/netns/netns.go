//go:build linux

// Package netns creates Linux network namespaces (network_namespaces(7)) that belong to this process, with taps and
// bridges, and runs programs in them. A namespace has no name and no mount: the kernel deletes it when it is closed
// and no process uses it. Creating a namespace requires root.
package netns

import (
	"context"
	"fmt"
	"net"
	"os"
	"os/exec"
	"runtime"

	"golang.org/x/sys/unix"
)

// Namespace is a network namespace. It is safe for concurrent use.
type Namespace struct{ file *os.File }

// New creates a namespace whose loopback interface is up.
func New() (*Namespace, error) {
	type result struct {
		file *os.File
		err  error
	}
	made := make(chan result)
	go func() {
		runtime.LockOSThread() // never unlocked: the thread ends with the goroutine
		if err := unix.Unshare(unix.CLONE_NEWNET); err != nil {
			made <- result{nil, fmt.Errorf("new network namespace: %w", err)}
			return
		}
		file, err := os.Open("/proc/thread-self/ns/net")
		made <- result{file, err}
	}()
	r := <-made
	if r.err != nil {
		return nil, r.err
	}
	n := &Namespace{r.file}
	if err := n.Do(func() error { return up("lo") }); err != nil {
		_ = n.Close() // the namespace is empty
		return nil, err
	}
	return n, nil
}

// Path returns the path of the namespace for other programs. It is valid while this process runs.
func (n *Namespace) Path() string { return fmt.Sprintf("/proc/%d/fd/%d", os.Getpid(), n.file.Fd()) }

// Close releases the namespace.
func (n *Namespace) Close() error { return n.file.Close() }

// Do calls f within the namespace. Sockets that f creates belong to the namespace; sockets of goroutines that f
// starts do not.
func (n *Namespace) Do(f func() error) error {
	done := make(chan error)
	go func() {
		runtime.LockOSThread()
		err := n.enter()
		if err == nil {
			err = f()
		}
		done <- err
	}()
	return <-done
}

// DialContext connects from within the namespace. The address must be numeric, because a resolver would run outside.
func (n *Namespace) DialContext(ctx context.Context, network, address string) (conn net.Conn, err error) {
	err = n.Do(func() (err error) {
		conn, err = (&net.Dialer{}).DialContext(ctx, network, address)
		return err
	})
	return conn, err
}

// Listen listens within the namespace on a numeric address.
func (n *Namespace) Listen(ctx context.Context, network, address string) (l net.Listener, err error) {
	err = n.Do(func() (err error) {
		l, err = (&net.ListenConfig{}).Listen(ctx, network, address)
		return err
	})
	return l, err
}

// ListenPacket opens a packet socket, for example "udp", within the namespace on a numeric address.
func (n *Namespace) ListenPacket(ctx context.Context, network, address string) (c net.PacketConn, err error) {
	err = n.Do(func() (err error) {
		c, err = (&net.ListenConfig{}).ListenPacket(ctx, network, address)
		return err
	})
	return c, err
}

// Start starts a program within the namespace. The caller must call wait, which waits until the program ends. The
// thread that starts it lives until then, so cmd may set a parent death signal (Pdeathsig).
func (n *Namespace) Start(cmd *exec.Cmd) (wait func() error, err error) {
	started, ended := make(chan error), make(chan error, 1)
	go func() {
		runtime.LockOSThread()
		err := n.enter()
		if err == nil {
			err = cmd.Start()
		}
		started <- err
		if err == nil {
			ended <- cmd.Wait()
		}
	}()
	if err := <-started; err != nil {
		return nil, fmt.Errorf("start %s: %w", cmd.Path, err)
	}
	return func() error { return <-ended }, nil
}

// enter moves the calling thread into the namespace. The thread must be locked to its goroutine and must not be
// unlocked afterwards.
func (n *Namespace) enter() error {
	if err := unix.Setns(int(n.file.Fd()), unix.CLONE_NEWNET); err != nil {
		return fmt.Errorf("enter network namespace: %w", err)
	}
	return nil
}
