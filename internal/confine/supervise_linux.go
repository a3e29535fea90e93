package confine

import (
	"fmt"
	"runtime"
	"slices"
	"unsafe"

	"golang.org/x/sys/unix"
)

// supervisedDenied are system calls that fail with EPERM for a program whose mounts are supervised. They return the
// kernel's log, read its memory (BPF, perf), select where it swaps memory out, make it write to a file, open files of
// other mount namespaces (fanotify, handles), are not filtered (io_uring), stop it in the middle of a call, or control
// another process: process 1 is a program of the ramdisk.
var supervisedDenied = []uint32{
	unix.SYS_SYSLOG, unix.SYS_BPF, unix.SYS_PERF_EVENT_OPEN, unix.SYS_SWAPON, unix.SYS_SWAPOFF, unix.SYS_ACCT,
	unix.SYS_OPEN_BY_HANDLE_AT, unix.SYS_KEXEC_LOAD, unix.SYS_KEXEC_FILE_LOAD, unix.SYS_INIT_MODULE,
	unix.SYS_FINIT_MODULE, unix.SYS_DELETE_MODULE, unix.SYS_FANOTIFY_INIT, unix.SYS_FANOTIFY_MARK,
	unix.SYS_USERFAULTFD, unix.SYS_IO_URING_SETUP, unix.SYS_IO_URING_ENTER, unix.SYS_IO_URING_REGISTER,
	unix.SYS_PTRACE, unix.SYS_PROCESS_VM_READV, unix.SYS_PROCESS_VM_WRITEV, unix.SYS_PIDFD_GETFD,
}

// supervisedMissing are system calls that fail with ENOSYS for such a program. They could mount a file system or change
// a mount without mount(2), which programs use where the kernel does not have these calls.
var supervisedMissing = []uint32{
	unix.SYS_FSOPEN, unix.SYS_FSPICK, unix.SYS_FSCONFIG, unix.SYS_FSMOUNT, unix.SYS_MOUNT_SETATTR,
	unix.SYS_OPEN_TREE_ATTR,
}

const (
	// MountMagic is the value of the upper 16 flags of mount(2) that the kernel ignores.
	MountMagic = 0xc0ed0000
	// magicMask are the flags among which the magic value is.
	magicMask = 0xffff0000
	// mountElsewhere are the flags of mount(2) that act on existing mounts only.
	mountElsewhere = unix.MS_BIND | unix.MS_MOVE | unix.MS_SHARED | unix.MS_PRIVATE | unix.MS_SLAVE |
		unix.MS_UNBINDABLE
)

// SuperviseMounts lets another process decide which file systems the calling thread and all its children mount:
// mount(2) waits for a reply of the reader of the returned file descriptor, see seccomp_unotify(2), if it mounts a file
// system or changes the options of a mount. Bind mounts, moves, and changes of the propagation are done at once. Other
// system calls by which a program with CAP_SYS_ADMIN could reach the kernel's memory fail.
func SuperviseMounts() (listener int, err error) {
	arch, ok := map[string]uint32{"amd64": unix.AUDIT_ARCH_X86_64, "arm64": unix.AUDIT_ARCH_AARCH64}[runtime.GOARCH]
	if !ok {
		return -1, fmt.Errorf("supervise mounts: no system call filter for %s", runtime.GOARCH)
	}
	filter := superviseFilter(arch)
	program := unix.SockFprog{Len: uint16(len(filter)), Filter: &filter[0]}
	fd, _, errno := unix.Syscall(unix.SYS_SECCOMP, unix.SECCOMP_SET_MODE_FILTER,
		unix.SECCOMP_FILTER_FLAG_NEW_LISTENER, uintptr(unsafe.Pointer(&program)))
	if errno != 0 {
		return -1, fmt.Errorf("supervise mounts: %w", errno)
	}
	return int(fd), nil
}

// superviseFilter returns the BPF program of SuperviseMounts, see checkArguments for some of the calls. A call of
// another architecture ends the process.
func superviseFilter(arch uint32) []unix.SockFilter {
	filter := []unix.SockFilter{
		load(archOffset),
		jump(unix.BPF_JEQ, arch, 1, 0),
		result(unix.SECCOMP_RET_KILL_PROCESS),
		load(numberOffset),
		jump(unix.BPF_JGT, lastKnown, 0, 1),
		result(failure(unix.ENOSYS)),
	}
	filter = slices.Concat(filter,
		checkArguments(argumentCalls{
			ioctl: unix.SYS_IOCTL, socket: unix.SYS_SOCKET, socketpair: unix.SYS_SOCKETPAIR,
		}, netlinkProtocols),
		returnIf(failure(unix.ENOSYS), supervisedMissing...),
		returnIf(failure(unix.EPERM), supervisedDenied...),
	)
	return append(filter,
		jump(unix.BPF_JEQ, unix.SYS_MOUNT, 1, 0),
		result(unix.SECCOMP_RET_ALLOW),
		loadArgument(3),
		and(magicMask),
		jump(unix.BPF_JEQ, MountMagic, 0, 3),
		loadArgument(3),
		and(^uint32(magicMask)), // the kernel ignores the flags in the magic value
		unix.SockFilter{Code: unix.BPF_JMP | unix.BPF_JA, K: 1},
		loadArgument(3),
		jump(unix.BPF_JSET, unix.MS_REMOUNT, 1, 0),
		jump(unix.BPF_JSET, mountElsewhere, 1, 0),
		result(unix.SECCOMP_RET_USER_NOTIF),
		result(unix.SECCOMP_RET_ALLOW),
	)
}
