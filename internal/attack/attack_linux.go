// Package attack tries to leave a confinement: to read what belongs to the ramdisk, or to change it. Tests run it in
// place of the programs that are not ours. An attack that succeeds does no harm: it opens files and writes nothing, and
// calls the kernel with arguments that are invalid.
//
// A new idea is one row of a list.
package attack

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"unsafe"

	"golang.org/x/sys/unix"
)

const (
	// Secret is a part of the environment of the ramdisk's processes, and the content of SecretFile.
	Secret = "planted-by-the-ramdisk"
	// SecretFile is the pattern of files of the ramdisk.
	SecretFile = "/run/ironroot-planted-*"
)

// Report is what the attacks have found.
type Report struct {
	Tried   int               // number of attacks
	Reached map[string]string // what those have reached that were not refused
}

// InContainer are the attacks that a container permits, with the reasons.
func InContainer(privileged bool) map[string]string {
	permitted := map[string]string{
		"memory of process 1": "it is confined by the same filter, and the agent trusts none of its messages",
	}
	if privileged {
		for _, name := range []string{"open_tree", "move_mount", "pivot_root", "setns"} {
			permitted[name] = "bootc mounts in its own namespaces, and no call leads to others"
		}
	}
	return permitted
}

// errRefused is returned by attacks that have no error of the kernel.
var errRefused = errors.New("refused")

// attack is one attempt. It returns what it has reached, or an error.
type attack struct {
	name string
	try  func() (reached string, err error)
}

// Run runs all attacks.
func Run() Report {
	r := Report{Reached: map[string]string{}}
	for _, list := range [][]attack{calls(), sockets(), commands(), reads(), writes(), nodes(), processes(), mounts()} {
		for _, a := range list {
			r.Tried++
			if reached, err := a.try(); err == nil {
				r.Reached[a.name] = reached
			}
		}
	}
	return r
}

// call calls the kernel. It is refused if the error is one that a filter or a missing capability causes. Every other
// result means that the kernel has examined the arguments.
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

// calls are system calls that read the kernel's memory or log, change its code, reach files of other mount namespaces,
// or change mounts.
func calls() []attack {
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
		{"process_vm_readv", call(unix.SYS_PROCESS_VM_READV, 1, bad, 1, bad, 1, bad)},
		{"process_vm_writev", call(unix.SYS_PROCESS_VM_WRITEV, 1, bad, 1, bad, 1, bad)},
		{"a call that is not known", call(4000)},
	}
}

// sockets have the kernel's subsystems do something, or lead out of the machine.
func sockets() (list []attack) {
	for _, s := range []struct {
		name             string
		family, protocol int
	}{
		{"netlink: uevents", unix.AF_NETLINK, unix.NETLINK_KOBJECT_UEVENT},
		{"netlink: iSCSI", unix.AF_NETLINK, unix.NETLINK_ISCSI},
		{"netlink: SCSI transports", unix.AF_NETLINK, unix.NETLINK_SCSITRANSPORT},
		{"netlink: audit", unix.AF_NETLINK, unix.NETLINK_AUDIT},
		{"netlink: firewall", unix.AF_NETLINK, unix.NETLINK_NETFILTER},
		{"netlink: connector", unix.AF_NETLINK, unix.NETLINK_CONNECTOR},
		{"socket: hypervisor", unix.AF_VSOCK, 0},
		{"socket: TIPC", unix.AF_TIPC, 0},
		{"socket: RDS", unix.AF_RDS, 0},
		{"socket: IPsec keys", unix.AF_KEY, 2},
		{"socket: Bluetooth", unix.AF_BLUETOOTH, 1},
	} {
		list = append(list, attack{s.name, func() (string, error) {
			for _, kind := range []int{unix.SOCK_RAW, unix.SOCK_DGRAM, unix.SOCK_STREAM, unix.SOCK_SEQPACKET} {
				if fd, err := unix.Socket(s.family, kind, s.protocol); err == nil {
					return "socket opened", unix.Close(fd)
				}
			}
			return "", errRefused
		}})
	}
	return list
}

// commands are ioctls that return other namespaces, or enter text into a terminal.
func commands() (list []attack) {
	for _, c := range []struct {
		name, file string
		command    uintptr
	}{
		{"next mount namespace", "/proc/self/ns/mnt", 0x8010b70b},
		{"previous mount namespace", "/proc/self/ns/mnt", 0x8010b70c},
		{"user namespace of a mount namespace", "/proc/self/ns/mnt", 0xb701},
		{"parent of the PID namespace", "/proc/self/ns/pid", 0xb702},
		{"text for a terminal", "/dev/null", unix.TIOCSTI},
		{"console of the kernel", "/dev/null", unix.TIOCLINUX},
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

// reads are files with the memory, log or keys of the kernel, and all ways to a file of the ramdisk.
func reads() (list []attack) {
	for _, pattern := range []string{
		"/dev/mem", "/dev/kmsg", "/dev/port", "/dev/nvram", "/proc/kcore", "/proc/kmsg", "/proc/keys",
		"/proc/bootconfig", "/sys/firmware/initrd", SecretFile, "/proc/1/root" + SecretFile,
		"/proc/1/cwd/../../../../.." + SecretFile, "/proc/self/cwd/../../../../.." + SecretFile,
		"/proc/1/environ", "/proc/self/environ",
	} {
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
			own := strings.HasSuffix(pattern, "environ") && !bytes.Contains(text[:n], []byte(Secret))
			if n == 0 || own {
				return "", errRefused
			}
			return fmt.Sprintf("%d bytes", n), nil
		}})
	}
	return list
}

// writes are files by which the kernel runs a program, or with which it is controlled.
func writes() (list []attack) {
	for _, pattern := range []string{
		"/proc/sys/kernel/core_pattern", "/proc/sys/kernel/modprobe", "/proc/sys/kernel/hotplug",
		"/proc/sys/kernel/printk", "/proc/sys/kernel/sysrq", "/proc/sys/kernel/poweroff_cmd",
		"/proc/sys/vm/drop_caches", "/proc/sys/fs/binfmt_misc/register", "/proc/sysrq-trigger",
		"/sys/kernel/uevent_helper", "/sys/fs/cgroup/*/release_agent", "/sys/fs/cgroup/cgroup.procs",
		"/sys/power/state", "/sys/kernel/debug/*", "/sys/kernel/tracing/trace", "/proc/1/exe", "/proc/asound/*",
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
					return name + " opened", f.Close()
				}
			}
			return "", err
		}})
	}
	return list
}

// nodes are devices that do not belong to the program, and files that it has from the ramdisk.
func nodes() (list []attack) {
	for _, n := range []struct {
		name string
		mode uint32
		dev  uint64
	}{
		{"mem", unix.S_IFCHR, unix.Mkdev(1, 1)}, {"kmsg", unix.S_IFCHR, unix.Mkdev(1, 11)},
		{"sda", unix.S_IFBLK, unix.Mkdev(8, 0)}, {"ram0", unix.S_IFBLK, unix.Mkdev(1, 0)},
	} {
		list = append(list, attack{"make the node " + n.name, func() (string, error) {
			path := filepath.Join(os.TempDir(), "attack-"+n.name)
			if err := unix.Mknod(path, n.mode|0o600, int(n.dev)); err != nil {
				return "", err
			}
			return path, os.Remove(path)
		}})
	}
	return append(list,
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
				number := filepath.Base(name)
				if err == nil && len(number) == 1 && number > "2" && strings.HasPrefix(target, "/") {
					found = append(found, number+" is "+target)
				}
			}
			if len(found) == 0 {
				return "", errRefused
			}
			return strings.Join(found, ", "), nil
		}},
	)
}

// processes are attacks on other processes, above all process 1, which belongs to the ramdisk in a container.
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
			runtime.LockOSThread() // a process is traced by a thread
			defer runtime.UnlockOSThread()
			if err := unix.PtraceSeize(1); err != nil {
				return "", err
			}
			return "traced", unix.PtraceDetach(1)
		})},
		{"memory of process 1", other(func() (string, error) {
			f, err := os.OpenFile("/proc/1/mem", os.O_RDWR, 0)
			if err != nil {
				return "", err
			}
			return "opened", f.Close()
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
			return "taken", unix.Close(taken)
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
		{"leave a second root", func() (reached string, err error) {
			done := make(chan struct{})
			go func() {
				defer close(done)
				runtime.LockOSThread() // the thread ends with the goroutine: it has another root
				reached, err = leaveRoot()
			}()
			<-done
			return reached, err
		}},
	}
}

// leaveRoot takes a directory as the root while the current one is outside of it.
func leaveRoot() (string, error) {
	dir, err := os.MkdirTemp("", "root")
	if err == nil {
		err = unix.Unshare(unix.CLONE_FS)
	}
	if err == nil {
		err = unix.Chroot(dir)
	}
	if err != nil {
		return "", err
	}
	for range 64 {
		if err := unix.Chdir(".."); err != nil {
			return "", err
		}
	}
	if names, err := filepath.Glob("." + SecretFile); len(names) == 0 {
		return "", errors.Join(err, fs.ErrNotExist)
	}
	return SecretFile, nil
}

// mounts show the kernel's interfaces, or uncover those of the ramdisk. They run last: what succeeds stays.
func mounts() (list []attack) {
	mount := func(kind string) (dir string, err error) {
		if dir, err = os.MkdirTemp("", "mount"); err == nil {
			err = unix.Mount(kind, dir, kind, 0, "")
		}
		return dir, err
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
					return name + " opened", f.Close()
				}
			}
			return "", errRefused
		}})
	}
	for _, at := range []string{"/proc/sys", "/proc/sysrq-trigger", "/sys", "/proc"} {
		list = append(list, attack{"make " + at + " writable", func() (string, error) {
			return "", unix.Mount("", at, "", unix.MS_REMOUNT|unix.MS_BIND, "")
		}})
	}
	for _, at := range []string{"/proc/cmdline", "/proc/kcore", "/proc/sys", "/run", "/dev", "/sys", "/proc", "/"} {
		list = append(list, attack{"unmount " + at, func() (string, error) {
			return "", unix.Unmount(at, unix.MNT_DETACH)
		}})
	}
	return list
}
