package testenv

import (
	"errors"
	"fmt"
	"os"
	"runtime"
	"strconv"
	"testing"

	"golang.org/x/sys/unix"
)

// DropCapability removes a capability of capabilities(7) from the calling thread. It locks the goroutine to that
// thread, and the test must not unlock it: the thread ends with the test.
func DropCapability(t testing.TB, capability uint) {
	t.Helper()
	runtime.LockOSThread()
	header := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
	var sets [2]unix.CapUserData
	if err := unix.Capget(&header, &sets[0]); err != nil {
		t.Fatal(err)
	}
	set, bit := &sets[capability/32], uint32(1)<<(capability%32)
	set.Effective &^= bit
	set.Permitted &^= bit
	if err := unix.Capset(&header, &sets[0]); err != nil {
		t.Fatal(err)
	}
}

// Port returns a TCP port that no other process gets from the kernel until the test ends, neither for a server nor for
// an outgoing connection. A bound socket that does not listen reserves it. Servers can listen on it if they set
// SO_REUSEADDR, as [net.Listen] and most programs do; while none does, connections are refused.
func Port(t testing.TB) int {
	t.Helper()
	fd, err := unix.Socket(unix.AF_INET6, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		t.Fatalf("reserve a port: %v", err)
	}
	t.Cleanup(func() { _ = unix.Close(fd) })
	err = errors.Join(
		unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_REUSEADDR, 1),
		unix.SetsockoptInt(fd, unix.IPPROTO_IPV6, unix.IPV6_V6ONLY, 0),
		unix.Bind(fd, &unix.SockaddrInet6{}),
	)
	if err != nil {
		t.Fatalf("reserve a port: %v", err)
	}
	address, err := unix.Getsockname(fd)
	if err != nil {
		t.Fatalf("reserve a port: %v", err)
	}
	return address.(*unix.SockaddrInet6).Port
}

// Loop attaches file to a free loop device with partition scanning and the given logical sector size in bytes, and
// returns the device's path. The device is detached when the test ends.
func Loop(t testing.TB, file string, sectorSize int) string {
	t.Helper()
	Root(t)
	backing, err := os.OpenFile(file, os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer backing.Close()
	control, err := os.OpenFile("/dev/loop-control", os.O_RDWR, 0)
	if err != nil {
		missing(t, "loop devices: %v", err)
	}
	defer control.Close()
	// Other tests wait until the device is attached: they would open it, and so be among its holders.
	if err := unix.Flock(int(control.Fd()), unix.LOCK_EX); err != nil {
		t.Fatalf("lock loop devices: %v", err)
	}
	for range 64 {
		number, err := unix.IoctlRetInt(int(control.Fd()), unix.LOOP_CTL_GET_FREE)
		if err != nil {
			t.Fatalf("no free loop device: %v", err)
		}
		path := "/dev/loop" + strconv.Itoa(number)
		if !fileExists(path) {
			if err := unix.Mknod(path, unix.S_IFBLK|0o600, int(unix.Mkdev(7, uint32(number)))); err != nil {
				t.Fatalf("%s: %v", path, err)
			}
		}
		if err := attach(path, backing, sectorSize); errors.Is(err, unix.EBUSY) {
			continue // another test attached it between the two calls
		} else if err != nil {
			t.Fatalf("attach %s to %s: %v", file, path, err)
		}
		t.Cleanup(func() {
			if err := detach(path); err != nil {
				t.Errorf("detach %s: %v", path, err)
			}
		})
		return path
	}
	t.Fatal("no free loop device after 64 tries")
	return ""
}

func attach(path string, backing *os.File, sectorSize int) error {
	loop, err := os.OpenFile(path, os.O_RDWR, 0)
	if err != nil {
		return err
	}
	defer loop.Close()
	config := unix.LoopConfig{Fd: uint32(backing.Fd()), Size: uint32(sectorSize)}
	config.Info.Flags = unix.LO_FLAGS_PARTSCAN
	if err := unix.IoctlLoopConfigure(int(loop.Fd()), &config); err != nil {
		return err
	}
	// A former user can have ended without removing a write protection.
	return unix.IoctlSetPointerInt(int(loop.Fd()), unix.BLKROSET, 0)
}

func detach(path string) error {
	loop, err := os.OpenFile(path, os.O_RDWR, 0)
	if err != nil {
		return err
	}
	defer loop.Close()
	if err := unix.IoctlSetInt(int(loop.Fd()), unix.LOOP_CLR_FD, 0); err != nil {
		return fmt.Errorf("LOOP_CLR_FD: %w", err)
	}
	return nil
}

// Mount mounts a file system of the given kind with its options. The caller unmounts it.
func Mount(t testing.TB, source, dir, kind, data string) {
	t.Helper()
	if err := unix.Mount(source, dir, kind, 0, data); err != nil {
		t.Fatalf("mount %s: %v", kind, err)
	}
}

// Detach unmounts a file system that may still be in use.
func Detach(t testing.TB, dir string) {
	t.Helper()
	if err := unix.Unmount(dir, unix.MNT_DETACH); err != nil {
		t.Errorf("unmount %s: %v", dir, err)
	}
}
