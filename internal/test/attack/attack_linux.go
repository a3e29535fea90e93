package attack

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"unsafe"

	"golang.org/x/sys/unix"
)

// Secret is part of the environment of the ramdisk's processes, and the content of SecretFiles. Package attacktest
// plants both on the machine that runs a test, and tests with a guest plant them there.
const Secret = "planted-by-the-ramdisk"

// SecretFiles are patterns that match files of the ramdisk: in its memory, and in its configuration.
var SecretFiles = []string{"/run/ironroot-planted-*", "/etc/ironic-python-agent.d/ironroot-planted-*"}

// errRefused is returned by attacks that fail without an error of the kernel.
var errRefused = errors.New("refused")

// attack is one attempt. It returns what it reached, or an error. To add an attack, add a row to the list of its kind.
type attack struct {
	name string
	try  func() (reached string, err error)
}

// Run runs all attacks. It returns an error in the initial PID namespace: the process is not confined then.
func Run() (Report, error) {
	const initial = "pid:[4026531836]" // PROC_PID_INIT_INO of Linux
	if link, err := os.Readlink("/proc/self/ns/pid"); err != nil || link == initial {
		return Report{}, errors.Join(errors.New("attack: the process is in the initial PID namespace"), err)
	}
	r := Report{Reached: map[string]string{}}
	for _, list := range [][]attack{
		systemCalls(), sockets(), ioctls(), fileReads(), fileWrites(), devices(), processes(), mounts(),
	} {
		for _, a := range list {
			r.Tried++
			if reached, err := a.try(); err == nil {
				r.Reached[a.name] = reached
			}
		}
	}
	return r, nil
}

// call reports a system call as refused if it fails with EPERM, EACCES or ENOSYS. It cannot tell a filter from a
// missing capability, or from a kernel without the call.
func call(number uintptr, arguments ...uintptr) func() (string, error) {
	var a [6]uintptr
	copy(a[:], arguments)
	return func() (string, error) {
		_, _, errno := unix.Syscall6(number, a[0], a[1], a[2], a[3], a[4], a[5])
		switch errno {
		case unix.EPERM, unix.ENOSYS, unix.EACCES:
			return "", errno
		}
		return "the kernel answers: " + errno.Error(), nil
	}
}

// systemCalls returns attacks by system calls that read the kernel's memory or log, change its code, reach files of
// other mount namespaces, control other processes, or change mounts.
func systemCalls() []attack {
	const bad = ^uintptr(0)
	return []attack{
		{"fanotify_init", call(unix.SYS_FANOTIFY_INIT)},
		{"fanotify_mark", call(unix.SYS_FANOTIFY_MARK, bad)},
		{"open_by_handle_at", call(unix.SYS_OPEN_BY_HANDLE_AT, bad)},
		{"bpf", call(unix.SYS_BPF, bad)},
		{"perf_event_open", call(unix.SYS_PERF_EVENT_OPEN, 0, 0, bad, bad)},
		{"io_uring_setup", call(unix.SYS_IO_URING_SETUP)},
		{"io_uring_enter", call(unix.SYS_IO_URING_ENTER, bad)},
		{"io_uring_register", call(unix.SYS_IO_URING_REGISTER, bad)},
		{"userfaultfd", call(unix.SYS_USERFAULTFD, bad)},
		{"kexec_load", call(unix.SYS_KEXEC_LOAD, 0, bad, 0, bad)},
		{"kexec_file_load", call(unix.SYS_KEXEC_FILE_LOAD, bad, bad, 0, 0, bad)},
		{"init_module", call(unix.SYS_INIT_MODULE, bad, 1, bad)},
		{"finit_module", call(unix.SYS_FINIT_MODULE, bad, bad, bad)},
		{"delete_module", call(unix.SYS_DELETE_MODULE, bad)},
		{"swapon", call(unix.SYS_SWAPON, bad)},
		{"swapoff", call(unix.SYS_SWAPOFF, bad)},
		{"acct", call(unix.SYS_ACCT, bad)},
		{"reboot", call(unix.SYS_REBOOT)},
		{"syslog", call(unix.SYS_SYSLOG, 10)},
		{"fsopen", call(unix.SYS_FSOPEN, bad)},
		{"fsconfig", call(unix.SYS_FSCONFIG, bad)},
		{"fsmount", call(unix.SYS_FSMOUNT, bad)},
		{"fspick", call(unix.SYS_FSPICK, bad, bad)},
		{"open_tree", call(unix.SYS_OPEN_TREE, bad, bad, bad)},
		{"open_tree_attr", call(unix.SYS_OPEN_TREE_ATTR, bad, bad, bad)},
		{"move_mount", call(unix.SYS_MOVE_MOUNT, bad, bad)},
		{"mount_setattr", call(unix.SYS_MOUNT_SETATTR, bad, bad)},
		{"pivot_root", call(unix.SYS_PIVOT_ROOT, bad, bad)},
		{"setns", call(unix.SYS_SETNS, bad)},
		{"statmount", call(unix.SYS_STATMOUNT, bad)},
		{"listmount", call(unix.SYS_LISTMOUNT, bad)},
		{"clone3", call(unix.SYS_CLONE3, bad)},
		{"user namespace", call(unix.SYS_UNSHARE, unix.CLONE_NEWUSER|unix.CLONE_NEWTIME)},
		{"process in a user namespace", call(unix.SYS_CLONE, unix.CLONE_NEWUSER|unix.CLONE_FS)}, // fails with EINVAL
		{"add_key", call(unix.SYS_ADD_KEY, bad, bad)},
		{"keyctl", call(unix.SYS_KEYCTL, bad)},
		{"request_key", call(unix.SYS_REQUEST_KEY, bad, bad)},
		{"kcmp", call(unix.SYS_KCMP, 1, 1, bad)},
		{"quotactl", call(unix.SYS_QUOTACTL, bad)},
		{"clock_settime", call(unix.SYS_CLOCK_SETTIME, bad)},
		{"sethostname", call(unix.SYS_SETHOSTNAME, bad, bad)},
		{"process_madvise", call(unix.SYS_PROCESS_MADVISE, bad)},
		{"call of a later kernel", call(472)},
		{"process_vm_readv", call(unix.SYS_PROCESS_VM_READV, 1, bad, 1, bad, 1, bad)},
		{"process_vm_writev", call(unix.SYS_PROCESS_VM_WRITEV, 1, bad, 1, bad, 1, bad)},
	}
}

// sockets returns attacks by sockets that control subsystems of the kernel, or lead out of the machine.
func sockets() (list []attack) {
	for _, s := range []struct {
		name             string
		family, protocol int
	}{
		{uevents, unix.AF_NETLINK, unix.NETLINK_KOBJECT_UEVENT},
		{"netlink: iSCSI", unix.AF_NETLINK, unix.NETLINK_ISCSI},
		{"netlink: SCSI transports", unix.AF_NETLINK, unix.NETLINK_SCSITRANSPORT},
		{"netlink: audit", unix.AF_NETLINK, unix.NETLINK_AUDIT},
		{"netlink: firewall", unix.AF_NETLINK, unix.NETLINK_NETFILTER},
		{"netlink: connector", unix.AF_NETLINK, unix.NETLINK_CONNECTOR},
		{"socket: hypervisor", unix.AF_VSOCK, 0},
		{"socket: cryptography", unix.AF_ALG, 0},
		{"netlink: cryptography", unix.AF_NETLINK, unix.NETLINK_CRYPTO},
		{"socket: TIPC", unix.AF_TIPC, 0},
		{"socket: RDS", unix.AF_RDS, 0},
		{"socket: IPsec keys", unix.AF_KEY, 2},
		{"socket: Bluetooth", unix.AF_BLUETOOTH, 1},
	} {
		list = append(list, attack{s.name, func() (string, error) {
			for _, kind := range []int{unix.SOCK_RAW, unix.SOCK_DGRAM, unix.SOCK_STREAM, unix.SOCK_SEQPACKET} {
				if fd, err := unix.Socket(s.family, kind, s.protocol); err == nil {
					_ = unix.Close(fd)
					return "socket opened", nil
				}
				if pair, err := unix.Socketpair(s.family, kind, s.protocol); err == nil {
					_, _ = unix.Close(pair[0]), unix.Close(pair[1])
					return "pair of sockets opened", nil
				}
			}
			return "", errRefused
		}})
	}
	return list
}

// Commands of namespaces (include/uapi/linux/nsfs.h of Linux) that x/sys lacks.
const (
	nsMntGetNext = 0x8010b70b // NS_MNT_GET_NEXT
	nsMntGetPrev = 0x8010b70c // NS_MNT_GET_PREV
)

// ioctls returns attacks by ioctls that return other namespaces, or enter text into a terminal.
func ioctls() (list []attack) {
	for _, c := range []struct {
		name, file string
		command    uintptr
	}{
		{"next mount namespace", "/proc/self/ns/mnt", nsMntGetNext},
		{"previous mount namespace", "/proc/self/ns/mnt", nsMntGetPrev},
		{"user namespace of a mount namespace", "/proc/self/ns/mnt", unix.NS_GET_USERNS},
		{"text for a terminal", "/dev/null", unix.TIOCSTI},
		{"text of a virtual terminal", "/dev/null", unix.TIOCLINUX},
		{"output of the console", "/dev/null", unix.TIOCCONS},
	} {
		list = append(list, attack{c.name, func() (string, error) {
			f, err := os.Open(c.file)
			if err != nil {
				return "", err
			}
			defer f.Close() //nolint:errcheck // only read
			var buffer [64]byte
			buffer[0] = 16 // size of struct mnt_ns_info
			_, _, errno := unix.Syscall(unix.SYS_IOCTL, f.Fd(), c.command, uintptr(unsafe.Pointer(&buffer)))
			if errno == unix.EPERM {
				return "", errno
			}
			return "the kernel answers: " + errno.Error(), nil
		}})
	}
	return list
}

// fileReads returns attacks on files with the memory, log or keys of the kernel, and on files of the ramdisk.
func fileReads() (list []attack) {
	patterns := []string{
		"/dev/mem", "/dev/kmsg", "/dev/port", "/dev/nvram", "/proc/kcore", "/proc/kmsg", "/proc/keys",
		"/proc/bootconfig", "/sys/firmware/initrd", "/proc/1/environ", "/proc/self/environ",
	}
	for _, file := range SecretFiles {
		patterns = append(patterns, file, "/proc/1/root"+file, "/proc/1/cwd/../../../../.."+file,
			"/proc/self/cwd/../../../../.."+file)
	}
	for _, pattern := range patterns {
		list = append(list, attack{"read " + pattern, func() (string, error) {
			names, err := filepath.Glob(pattern)
			if len(names) == 0 {
				return "", errors.Join(err, fs.ErrNotExist)
			}
			fd, err := unix.Open(names[0], unix.O_RDONLY|unix.O_NONBLOCK|unix.O_CLOEXEC, 0)
			if err != nil {
				return "", err
			}
			defer unix.Close(fd) //nolint:errcheck // only read
			text := make([]byte, 64<<10)
			n, err := unix.Read(fd, text)
			if err != nil {
				return "", err
			}
			isHarmless := strings.HasSuffix(pattern, "environ") && !bytes.Contains(text[:n], []byte(Secret))
			if n == 0 || isHarmless {
				return "", errRefused
			}
			return fmt.Sprintf("%d bytes", n), nil
		}})
	}
	return list
}

// fileWrites returns attacks on files that name programs for the kernel to start, or that control it.
func fileWrites() (list []attack) {
	for _, pattern := range []string{
		"/proc/sys/kernel/core_pattern", "/proc/sys/kernel/modprobe", "/proc/sys/kernel/hotplug",
		"/proc/sys/kernel/printk", "/proc/sys/kernel/sysrq", "/proc/sys/kernel/poweroff_cmd",
		"/proc/sys/vm/drop_caches", "/proc/sys/fs/binfmt_misc/register", "/proc/sysrq-trigger",
		"/sys/kernel/uevent_helper", "/sys/fs/cgroup/*/release_agent", "/sys/fs/cgroup/cgroup.procs",
		"/sys/power/state", "/sys/kernel/debug/*", "/sys/kernel/tracing/trace",
	} {
		list = append(list, attack{"write " + pattern, func() (string, error) {
			names, err := filepath.Glob(pattern)
			if err != nil {
				return "", err
			}
			err = fs.ErrNotExist
			for _, name := range names {
				var f *os.File
				if f, err = os.OpenFile(name, os.O_WRONLY, 0); err == nil {
					_ = f.Close() // nothing was written
					return name + " opened", nil
				}
			}
			return "", err
		}})
	}
	return list
}

// devices returns attacks on devices that do not belong to the program, and searches for files of the ramdisk that it
// has inherited.
func devices() (list []attack) {
	for _, n := range []struct {
		name string
		mode uint32
		dev  uint64
	}{
		{"mem", unix.S_IFCHR, unix.Mkdev(1, 1)},
		{"kmsg", unix.S_IFCHR, unix.Mkdev(1, 11)},
		{"sda", unix.S_IFBLK, unix.Mkdev(8, 0)},
		{"ram0", unix.S_IFBLK, unix.Mkdev(1, 0)},
	} {
		list = append(list, attack{"make the node " + n.name, func() (string, error) {
			path := filepath.Join(os.TempDir(), "attack-"+n.name)
			if err := unix.Mknod(path, n.mode|0o600, int(n.dev)); err != nil {
				return "", err
			}
			_ = os.Remove(path)
			return path, nil
		}})
	}
	return append(list,
		attack{"userfaultfd by its device", func() (string, error) {
			f, err := os.OpenFile("/dev/userfaultfd", os.O_RDWR, 0)
			if err != nil {
				return "", err
			}
			defer f.Close()       //nolint:errcheck // nothing is written
			const create = 0xaa00 // USERFAULTFD_IOC_NEW
			fd, _, errno := unix.Syscall(unix.SYS_IOCTL, f.Fd(), create, 0)
			if errno != 0 {
				return "", errno
			}
			return "descriptor made", unix.Close(int(fd))
		}},
		attack{"image of the memory", func() (string, error) { // opening it would prepare a hibernation
			var info unix.Stat_t
			if err := unix.Stat("/dev/snapshot", &info); err != nil {
				return "", err
			}
			if info.Rdev != unix.Mkdev(10, 231) {
				return "", errRefused
			}
			return "/dev/snapshot", nil
		}},
		attack{"standard input is a node of the ramdisk", func() (string, error) {
			var input, dev unix.Stat_t
			if err := errors.Join(unix.Fstat(0, &input), unix.Stat("/dev", &dev)); err != nil {
				return "", err
			}
			if kind := input.Mode & unix.S_IFMT; kind != unix.S_IFCHR && kind != unix.S_IFBLK || input.Dev == dev.Dev {
				return "", errRefused
			}
			return fmt.Sprintf("node %#x of file system %#x", input.Rdev, input.Dev), nil
		}},
		attack{"inherited files", func() (string, error) {
			names, err := filepath.Glob("/proc/self/fd/*")
			if err != nil {
				return "", err
			}
			var found []string
			for _, name := range names {
				target, err := os.Readlink(name)
				number, _ := strconv.Atoi(filepath.Base(name))
				if err == nil && number > 2 && strings.HasPrefix(target, "/") && !strings.HasPrefix(target, "/proc/") {
					found = append(found, fmt.Sprintf("%d is %s", number, target))
				}
			}
			if len(found) == 0 {
				return "", errRefused
			}
			return strings.Join(found, ", "), nil
		}},
	)
}

// processes returns attacks on other processes, above all on process 1, which in a container is a program of the
// ramdisk.
func processes() []attack {
	other := func(f func() (string, error)) func() (string, error) {
		return func() (string, error) {
			if os.Getpid() == 1 {
				return "", errRefused // there is no other
			}
			return f()
		}
	}
	return []attack{
		{"trace process 1", other(func() (string, error) {
			return inThread(func() (string, error) { return "traced", unix.PtraceSeize(1) }) // until the thread ends
		})},
		{"memory of process 1", other(func() (string, error) {
			f, err := os.OpenFile("/proc/1/mem", os.O_RDWR, 0)
			if err != nil {
				return "", err
			}
			_ = f.Close() // nothing was written
			return "opened", nil
		})},
		{"files of process 1", other(func() (string, error) {
			fd, err := unix.PidfdOpen(1, 0)
			if err != nil {
				return "", err
			}
			defer unix.Close(fd) //nolint:errcheck // only used here
			taken, err := unix.PidfdGetfd(fd, 0, 0)
			if err != nil {
				return "", err
			}
			_ = unix.Close(taken)
			return "taken", nil
		})},
		{"environment of all processes", func() (string, error) {
			names, err := filepath.Glob("/proc/[0-9]*/environ")
			if err != nil {
				return "", err
			}
			for _, name := range names {
				if text, err := os.ReadFile(name); err == nil && bytes.Contains(text, []byte(Secret)) {
					return name, nil
				}
			}
			return "", errRefused
		}},
		{"chroot escape", func() (string, error) { return inThread(escapeRoot) }},
	}
}

// inThread runs an attack that changes its thread, which ends afterwards.
func inThread(try func() (string, error)) (reached string, err error) {
	done := make(chan struct{})
	go func() {
		defer close(done)
		runtime.LockOSThread() // without unlocking: the thread ends with the goroutine
		reached, err = try()
	}()
	<-done
	return reached, err
}

// escapeRoot makes a directory the root while the working directory is outside of it.
func escapeRoot() (string, error) {
	dir, err := os.MkdirTemp("", "root")
	if err == nil {
		err = unix.Unshare(unix.CLONE_FS)
	}
	if err == nil {
		err = unix.Chroot(dir) //nolint:forbidigo // an attack
	}
	if err != nil {
		return "", err
	}
	for range 64 {
		if err := unix.Chdir(".."); err != nil {
			return "", err
		}
	}
	for _, pattern := range SecretFiles {
		if names, err := filepath.Glob("." + pattern); len(names) > 0 && err == nil {
			return names[0], nil
		}
	}
	return "", fs.ErrNotExist
}

// mounts returns attacks that mount file systems of the kernel, or uncover files of the ramdisk. They must be the last
// ones: successful mounts remain.
func mounts() (list []attack) {
	mount := func(kind string) (dir string, err error) {
		if dir, err = os.MkdirTemp("", "mount"); err != nil {
			return err.Error(), nil //nolint:nilerr // nothing was refused
		}
		return dir, unix.Mount(kind, dir, kind, 0, "")
	}
	for _, kind := range []string{
		"debugfs", "tracefs", "securityfs", "configfs", "bpf", "cgroup", "cgroup2", "binfmt_misc", "efivarfs",
		"pstore", "fusectl", "nfsd", "rpc_pipefs",
	} {
		list = append(list, attack{"mount " + kind, func() (string, error) { return mount(kind) }})
	}
	for kind, names := range map[string][]string{
		"proc":     {"sys/kernel/core_pattern", "sysrq-trigger"},
		"sysfs":    {"power/state", "kernel/uevent_helper", "kernel/mm/transparent_hugepage/enabled"},
		"devtmpfs": {"mem", "kmsg", "port", "loop-control", "mapper/control"},
	} {
		list = append(list, attack{"mount " + kind, func() (string, error) {
			dir, err := mount(kind)
			if err != nil {
				return "", err
			}
			for _, name := range names {
				if f, err := os.OpenFile(filepath.Join(dir, name), os.O_WRONLY, 0); err == nil {
					_ = f.Close() // nothing was written
					return name + " opened", nil
				}
			}
			return "", errRefused
		}})
	}
	for _, at := range []string{"/proc/sys", "/proc/sysrq-trigger", "/sys", "/proc"} {
		list = append(list, attack{"make " + at + " writable", func() (string, error) {
			return "mounted writable", unix.Mount("", at, "", unix.MS_REMOUNT|unix.MS_BIND, "")
		}})
	}
	for _, at := range []string{"/proc/cmdline", "/proc/kcore", "/proc/sys", "/run", "/dev", "/sys", "/proc", "/"} {
		list = append(list, attack{"unmount " + at, func() (string, error) {
			return "unmounted", unix.Unmount(at, unix.MNT_DETACH)
		}})
	}
	return list
}
