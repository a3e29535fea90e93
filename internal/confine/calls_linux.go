package confine

import (
	"fmt"
	"slices"
	"unsafe"

	"golang.org/x/sys/unix"
)

// callTable lists system calls of an architecture by number.
type callTable struct {
	arch    uint32 // AUDIT_ARCH_*
	denied  []uint32
	calls   argumentCalls
	private uint32 // number of the first call that only this architecture has; 0 if there is none
}

// newCalls are denied calls with the same number on all architectures: io_uring_setup, io_uring_enter,
// io_uring_register, open_tree, move_mount, fsopen, fsconfig, fsmount, fspick, pidfd_getfd, mount_setattr,
// open_tree_attr.
var newCalls = []uint32{425, 426, 427, 428, 429, 430, 431, 432, 433, 438, 442, 467}

// lastKnown is the largest number of a system call that was considered for this list (rseq_slice_yield). Later calls
// could mount, too.
const lastKnown = 471

// callTables list the system calls by which a program with CAP_SYS_ADMIN could read what is masked. They mount and
// unmount, enter other namespaces, return the kernel log, read kernel memory (BPF, perf), select where the kernel swaps
// memory out, which could be the disk of the image, or open files of other mount namespaces: an event of fanotify on
// the file system of /sys or /proc has a file descriptor that leads to the root of the ramdisk. Calls of io_uring are
// not filtered, and userfaultfd stops the kernel in the middle of a call. ptrace, process_vm_* and pidfd_getfd control
// other processes: process 1 of a container is a program of the ramdisk. 32-bit programs use other numbers. The numbers
// before newCalls stand for mount, umount2, umount (i386 only), pivot_root, setns, syslog, bpf, perf_event_open,
// swapon, swapoff, fanotify_init, fanotify_mark, open_by_handle_at, userfaultfd, ptrace, process_vm_readv and
// process_vm_writev.
var callTables = []callTable{
	{
		arch: unix.AUDIT_ARCH_X86_64, calls: argumentCalls{ioctl: 16, socket: 41, socketpair: 53},
		denied: slices.Concat([]uint32{
			165, 166, 155, 308, 103, 321, 298, 167, 168, 300, 301, 304, 323, 101, 310, 311,
		}, newCalls),
	},
	{
		arch: unix.AUDIT_ARCH_I386, calls: argumentCalls{ioctl: 54, socket: 359, socketpair: 360},
		denied: slices.Concat([]uint32{
			21, 52, 22, 217, 346, 103, 357, 336, 87, 115, 338, 339, 342, 374, 26, 347, 348,
		}, newCalls),
	},
	{
		arch: unix.AUDIT_ARCH_AARCH64, calls: argumentCalls{ioctl: 29, socket: 198, socketpair: 199},
		denied: slices.Concat([]uint32{
			40, 39, 41, 268, 116, 280, 241, 224, 225, 262, 263, 265, 282, 117, 270, 271,
		}, newCalls),
	},
	{
		arch: unix.AUDIT_ARCH_ARM, calls: argumentCalls{ioctl: 54, socket: 281, socketpair: 288},
		denied: slices.Concat([]uint32{
			21, 52, 218, 375, 103, 386, 364, 87, 115, 367, 368, 371, 388, 26, 376, 377,
		}, newCalls),
		private: 0x0f0000,
	},
}

// DenyCalls denies the system calls of callTables to the calling thread and all its children. They fail with EPERM,
// calls after lastKnown with ENOSYS, and some by their arguments, see checkArguments. A call of another architecture
// ends the process. See seccomp(2).
func DenyCalls() error {
	filter := callFilter(callTables)
	program := unix.SockFprog{Len: uint16(len(filter)), Filter: &filter[0]}
	_, _, errno := unix.Syscall(
		unix.SYS_SECCOMP, unix.SECCOMP_SET_MODE_FILTER, 0, uintptr(unsafe.Pointer(&program)))
	if errno != 0 {
		return fmt.Errorf("deny system calls: %w", errno)
	}
	return nil
}

// callFilter returns the BPF program that allows or denies a call described by struct seccomp_data.
func callFilter(tables []callTable) []unix.SockFilter {
	protocols := slices.Concat(netlinkProtocols, hardwareProtocols)
	filter := []unix.SockFilter{load(archOffset)}
	for _, table := range tables {
		// Jumps count from the next instruction, which is 0.
		ends := []unix.SockFilter{
			result(unix.SECCOMP_RET_ALLOW), result(failure(unix.EPERM)), result(failure(unix.ENOSYS)),
		}
		section := append([]unix.SockFilter{load(numberOffset)}, checkArguments(table.calls, protocols)...)
		if table.private != 0 {
			section = append(section, jump(unix.BPF_JGE, table.private, len(table.denied)+1, 0)) // allowed
		}
		section = append(section, jump(unix.BPF_JGT, lastKnown, len(table.denied)+2, 0)) // not known
		for i, number := range table.denied {
			section = append(section, jump(unix.BPF_JEQ, number, len(table.denied)-i, 0)) // denied
		}
		section = append(section, ends...)
		filter = append(filter, jump(unix.BPF_JEQ, table.arch, 0, len(section)))
		filter = append(filter, section...)
	}
	return append(filter, result(unix.SECCOMP_RET_KILL_PROCESS))
}
