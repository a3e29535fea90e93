// Command installer replaces a program of an image in tests: it prints what it can access.
package main

import (
	"encoding/binary"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

func main() { os.Exit(run(os.Args[1:])) }

func run(args []string) int {
	switch args[0] {
	case "fail":
		fmt.Println(strings.Repeat("long text\n", 10000) + "disk is on fire")
		return 3
	case "hang":
		fmt.Println("hanging")
		time.Sleep(time.Hour)
	case "spy":
		return spy()
	case "undo":
		return undo()
	}
	processes, _ := filepath.Glob("/proc/[0-9]*")
	interfaces, _ := os.ReadFile("/proc/net/dev") // two lines of titles, one for each
	_, outside := os.Stat("/etc/shadow")
	_, null := os.Stat("/dev/null")
	_, sys := os.Stat("/sys/block")
	names, _ := filepath.Glob("/dev/disk/by-uuid/*")
	report := fmt.Sprintf("pid %d, %d processes, %d interfaces, argument %s, variable %s, "+
		"outside %t, null %t, sys %t, %d names by UUID",
		os.Getpid(), len(processes), strings.Count(string(interfaces), "\n")-2, args[0], os.Getenv("VARIABLE"),
		outside == nil, null == nil, sys == nil, len(names))
	if err := os.WriteFile("/etc/"+filepath.Base(os.Args[0]), []byte(report), 0o644); err != nil {
		fmt.Println(err)
		return 1
	}
	return 0
}

// spy tries to access data of the ramdisk and prints the results. It exits with an error, so that its output is
// returned.
func spy() int {
	for _, name := range []string{
		"/proc/cmdline", "/proc/1/cmdline", "/proc/kcore", "/proc/kmsg", "/dev/kmsg", "/dev/mem", "/proc/bootconfig",
	} {
		fmt.Printf("read %s: %s\n", name, read(name))
	}
	environ, err := os.ReadFile("/proc/1/environ")
	fmt.Printf("environ secret %t %v\n", strings.Contains(string(environ), "SECRET"), err)
	for _, name := range []string{"/proc/sys/kernel/core_pattern", "/proc/sysrq-trigger", "/sys/kernel/uevent_helper"} {
		if old, err := os.ReadFile(name); err == nil || !os.IsNotExist(err) {
			// What is there: no harm where it succeeds.
			fmt.Printf("write %s: %v\n", name, os.WriteFile(name, old, 0o644))
		}
	}
	fmt.Println("log:", call(syscall.Klogctl(10, nil))) // SYSLOG_ACTION_SIZE_BUFFER
	fmt.Println("unmount:", syscall.Unmount("/proc/cmdline", 0))
	fmt.Println("mount:", syscall.Mount("proc", "/tmp", "proc", 0, ""))
	fmt.Println("node:", syscall.Mknod("/etc/mem", syscall.S_IFCHR|0o600, 1<<8|1))
	fmt.Println("chroot:", syscall.Chroot("/etc"))
	fmt.Println("device of the image:", read("/usr/sbin/device"))
	devices := []string{}
	_ = filepath.WalkDir("/dev", func(path string, entry os.DirEntry, err error) error {
		if err == nil && entry.Type()&os.ModeDevice != 0 {
			devices = append(devices, strings.TrimPrefix(path, "/dev/"))
		}
		return err
	})
	fmt.Println("devices:", devices)
	files, _ := filepath.Glob("/proc/self/fd/*")
	for _, file := range files {
		if target, err := os.Readlink(file); err == nil {
			fmt.Println("open file:", target)
		}
	}
	mounts, _ := os.ReadFile("/proc/self/mounts")
	for line := range strings.Lines(string(mounts)) {
		fmt.Print("mounted: ", strings.Join(strings.Fields(line)[1:3], " "), "\n")
	}
	return 4
}

// undo tries to remove the masks of the ramdisk's files, in its own namespaces and in new ones, and prints the
// results. It exits with an error, so that its output is returned.
func undo() int {
	if os.Getenv("AGAIN") == "" {
		command := exec.Command("/proc/self/exe", "undo")
		command.Env = append(os.Environ(), "AGAIN=1")
		command.SysProcAttr = &syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWNS}
		out, err := command.CombinedOutput()
		fmt.Printf("in a new namespace: %v\n%s", err, out)
	}
	fmt.Println("unmount:", syscall.Unmount("/proc/cmdline", syscall.MNT_DETACH))
	fmt.Println("mount:", syscall.Mount("proc", "/tmp", "proc", 0, ""))
	fmt.Println("remount:", syscall.Mount("", "/proc", "", syscall.MS_REMOUNT|syscall.MS_BIND, ""))
	fmt.Println("pivot_root:", unix.PivotRoot("/", "/"))
	self, _ := os.Open("/proc/self/ns/mnt")
	fmt.Println("setns:", unix.Setns(int(self.Fd()), unix.CLONE_NEWNS))
	fmt.Println("fsopen:", call(unix.Fsopen("proc", 0)))
	fmt.Println("fspick:", call(unix.Fspick(unix.AT_FDCWD, "/proc", 0)))
	fmt.Println("open_tree:", call(unix.OpenTree(unix.AT_FDCWD, "/proc", unix.OPEN_TREE_CLONE)))
	fmt.Println("move_mount:", unix.MoveMount(unix.AT_FDCWD, "/proc", unix.AT_FDCWD, "/tmp", 0))
	fmt.Println("mount_setattr:",
		unix.MountSetattr(unix.AT_FDCWD, "/proc", 0, &unix.MountAttr{Attr_clr: unix.MOUNT_ATTR_RDONLY}))
	for name, number := range map[string]uintptr{
		"fsconfig": unix.SYS_FSCONFIG, "fsmount": unix.SYS_FSMOUNT, "open_tree_attr": unix.SYS_OPEN_TREE_ATTR,
		"bpf": unix.SYS_BPF, "perf_event_open": unix.SYS_PERF_EVENT_OPEN, "later call": 472,
		"swapon": unix.SYS_SWAPON, "swapoff": unix.SYS_SWAPOFF, "fanotify_init": unix.SYS_FANOTIFY_INIT,
		"fanotify_mark": unix.SYS_FANOTIFY_MARK, "open_by_handle_at": unix.SYS_OPEN_BY_HANDLE_AT,
		"userfaultfd": unix.SYS_USERFAULTFD, "io_uring_setup": unix.SYS_IO_URING_SETUP,
	} {
		_, _, errno := syscall.Syscall6(number, ^uintptr(0), 0, 0, 0, 0, 0)
		fmt.Printf("%s: %v\n", name, errno)
	}
	fmt.Println("log:", call(syscall.Klogctl(10, nil))) // SYSLOG_ACTION_SIZE_BUFFER
	fmt.Println("command line:", read("/proc/cmdline"))
	// What GRUB needs on Btrfs.
	root, _ := os.Open("/")
	search := [4096]byte{}
	binary.LittleEndian.PutUint64(search[:], 1) // tree of tree roots
	binary.LittleEndian.PutUint32(search[64:], 1)
	// BTRFS_IOC_TREE_SEARCH.
	_, _, errno := syscall.Syscall(syscall.SYS_IOCTL, root.Fd(), 0xd0009411, uintptr(unsafe.Pointer(&search[0])))
	fmt.Println("search of Btrfs:", errno)
	return 4
}

// read returns the start of a file, or the error.
func read(name string) string {
	f, err := os.Open(name)
	if err != nil {
		return err.Error()
	}
	defer f.Close()
	text := make([]byte, 200)
	_ = f.SetReadDeadline(time.Now().Add(time.Second))
	n, err := f.Read(text)
	return fmt.Sprintf("%q %v", text[:n], err)
}

func call(_ int, err error) error { return err }
