// Package testenv checks and provides the requirements of tests: root privileges, programs, loop devices and build
// results. If a requirement is missing, the test is skipped with a message that names it. If the environment variable
// CI is set, the test fails instead, so that no test is skipped unnoticed.
package testenv

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

// missing ends the test because of a missing requirement: as failed if CI is set, otherwise as skipped.
func missing(t testing.TB, format string, args ...any) {
	t.Helper()
	if os.Getenv("CI") != "" {
		t.Fatalf("missing on this machine: "+format, args...)
	}
	t.Skipf("missing on this machine: "+format, args...)
}

// Root ends the test unless it runs as root.
func Root(t testing.TB) {
	t.Helper()
	if os.Geteuid() != 0 {
		missing(t, "root (run the tests with sudo)")
	}
}

// Programs ends the test unless every named program is on PATH or in /usr/sbin.
func Programs(t testing.TB, names ...string) {
	t.Helper()
	for _, name := range names {
		if _, err := exec.LookPath(name); err == nil {
			continue
		}
		if _, err := os.Stat(filepath.Join("/usr/sbin", name)); err == nil {
			continue
		}
		missing(t, "program %s", name)
	}
}

// Files ends the test unless every named file exists. hint describes how to create them.
func Files(t testing.TB, hint string, names ...string) {
	t.Helper()
	for _, name := range names {
		if _, err := os.Stat(name); err != nil {
			missing(t, "file %s (%s)", name, hint)
		}
	}
}

// Run runs a program and returns its standard output and error combined. If the program fails, the test fails.
func Run(t testing.TB, name string, args ...string) string {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), name, args...)
	cmd.Env = append(os.Environ(), "LC_ALL=C", "PATH="+os.Getenv("PATH")+":/usr/sbin:/sbin")
	if cmd.Err != nil {
		if path := filepath.Join("/usr/sbin", name); fileExists(path) {
			cmd.Path, cmd.Err = path, nil
		}
	}
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("%s %s: %v\n%s", name, strings.Join(args, " "), err, out)
	}
	return string(out)
}

// DropCapability removes a capability of capabilities(7) from the calling thread. It locks the goroutine to that thread,
// and the test must not unlock it: the thread ends with the test.
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

// GPT makes a partition table with sfdisk. Each partition is a line of its input: "start=2048, size=8MiB". It is more
// than a second faster than sgdisk, which sleeps after writing.
func GPT(t testing.TB, path string, partitions ...string) {
	t.Helper()
	Programs(t, "sfdisk")
	input := filepath.Join(t.TempDir(), "partitions")
	text := "label: gpt\nfirst-lba: 34\n" + strings.Join(partitions, "\n") + "\n"
	if err := os.WriteFile(input, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	Run(t, "sh", "-c", `exec sfdisk --quiet --wipe never "$0" <"$1"`, path, input)
}

func fileExists(name string) bool {
	_, err := os.Stat(name)
	return err == nil
}

// Build returns the path of a file of the repository's build folder, which `make build` fills.
func Build(t testing.TB, name string) string {
	t.Helper()
	path := filepath.Join(Top(t), "build", name)
	Files(t, "run make build", path)
	return path
}

// Top returns the root folder of the repository.
func Top(t testing.TB) string {
	t.Helper()
	dir, err := os.Getwd()
	if err != nil {
		t.Fatal(err)
	}
	for ; dir != "/"; dir = filepath.Dir(dir) {
		if fileExists(filepath.Join(dir, "go.mod")) {
			return dir
		}
	}
	t.Fatal("no go.mod above the test's directory")
	return ""
}

// SparseFile creates a sparse file of size bytes in a temporary directory of the test and returns its path.
func SparseFile(t testing.TB, size int64) string {
	t.Helper()
	f, err := os.CreateTemp(t.TempDir(), "disk")
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if err := f.Truncate(size); err != nil {
		t.Fatal(err)
	}
	return f.Name()
}

// Loop attaches file to a free loop device with partition scanning on and the given logical sector size in bytes,
// and returns the device's path. It is detached when the test ends.
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
			continue // another test took it between the two calls
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
	// The device's last user may have died before it took a write protection back.
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
