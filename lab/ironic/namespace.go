package ironic

import (
	"context"
	"fmt"
	"net"
	"os"
	"runtime"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// namespace is a network namespace that lives until it is closed and nothing runs in it any more.
type namespace struct{ file *os.File }

func newNamespace() (*namespace, error) {
	type result struct {
		file *os.File
		err  error
	}
	made := make(chan result)
	go func() {
		runtime.LockOSThread() // and never unlocked: the thread ends with the goroutine
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
	n := &namespace{r.file}
	return n, n.do(func() error { return linkUp("lo") })
}

// path is where other programs find the namespace.
func (n *namespace) path() string { return fmt.Sprintf("/proc/%d/fd/%d", os.Getpid(), n.file.Fd()) }

// Close lets go of the namespace.
func (n *namespace) Close() error { return n.file.Close() }

// enter moves the calling thread, which must be locked and must not be unlocked again, into the namespace.
func (n *namespace) enter() error {
	if err := unix.Setns(int(n.file.Fd()), unix.CLONE_NEWNET); err != nil {
		return fmt.Errorf("enter network namespace: %w", err)
	}
	return nil
}

// do calls f within the namespace. Sockets made by f itself, not by goroutines it starts, belong to it.
func (n *namespace) do(f func() error) error {
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

// dial connects from within the namespace. Addresses must be numeric, so that no resolver is asked elsewhere.
func (n *namespace) dial(ctx context.Context, network, address string) (conn net.Conn, err error) {
	err = n.do(func() (err error) {
		conn, err = (&net.Dialer{}).DialContext(ctx, network, address)
		return err
	})
	return conn, err
}

func linkUp(name string) error {
	link, err := netlink.LinkByName(name)
	if err == nil {
		err = netlink.LinkSetUp(link)
	}
	if err != nil {
		return fmt.Errorf("interface %s: %w", name, err)
	}
	return nil
}

// makeBridge makes a bridge with an address in the thread's namespace.
func makeBridge(name, address string) error {
	bridge := &netlink.Bridge{LinkAttrs: netlink.LinkAttrs{Name: name}}
	if err := netlink.LinkAdd(bridge); err != nil {
		return fmt.Errorf("bridge %s: %w", name, err)
	}
	parsed, err := netlink.ParseAddr(address)
	if err != nil {
		return fmt.Errorf("bridge %s: %w", name, err)
	}
	if err := netlink.AddrAdd(bridge, parsed); err != nil {
		return fmt.Errorf("bridge %s: address %s: %w", name, address, err)
	}
	return linkUp(name)
}

// makeTap makes a tap interface on a bridge in the thread's namespace.
func makeTap(name, bridge string) error {
	master, err := netlink.LinkByName(bridge)
	if err != nil {
		return fmt.Errorf("bridge %s: %w", bridge, err)
	}
	attrs := netlink.LinkAttrs{Name: name, MasterIndex: master.Attrs().Index}
	tap := &netlink.Tuntap{LinkAttrs: attrs, Mode: netlink.TUNTAP_MODE_TAP}
	if err := netlink.LinkAdd(tap); err != nil {
		return fmt.Errorf("tap %s: %w", name, err)
	}
	if err := netlink.LinkSetMaster(tap, master); err != nil {
		return fmt.Errorf("tap %s: %w", name, err)
	}
	return linkUp(name)
}
