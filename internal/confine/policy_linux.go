package confine

import (
	"fmt"
	"slices"
	"unsafe"

	"github.com/elastic/go-seccomp-bpf/arch"
	"golang.org/x/sys/unix"
)

// Policy is a list of the system calls that are permitted. Every other call waits for a reply of the reader of the
// listener that Apply returns, see [Serve], except for probedCalls, which fail.
type Policy struct {
	allowed     []string
	mounts      bool   // the flags of mount(2) decide whether it waits for a reply
	namespaces  uint32 // CLONE_NEW* that clone(2) and unshare(2) may have
	fileSystems bool   // ioctls that control file systems are permitted
	protocols   []uint32
}

// ProgramPolicy returns the policy for a program that manages hardware, for a boot loader, and for a container without
// privileges. more are names of calls that are permitted, too.
func ProgramPolicy(more ...string) Policy {
	return Policy{
		allowed:   slices.Concat(programCalls, hardwareCalls, more),
		protocols: slices.Concat(netlinkProtocols, hardwareProtocols),
	}
}

// InstallerPolicy returns the policy for a container that installs a system, as bootc does. Its mounts and setns(2)
// wait for a reply. It may make namespaces, except for user namespaces.
func InstallerPolicy() Policy {
	return Policy{
		allowed:     slices.Concat(programCalls, installerCalls),
		mounts:      true,
		namespaces:  newNamespaces &^ unix.CLONE_NEWUSER,
		fileSystems: true,
		protocols:   netlinkProtocols,
	}
}

// Apply limits the calling thread and all its children to the policy. Calls that it does not permit wait for a reply of
// the reader of the listener, and fail with ENOSYS once nobody has it open. See seccomp_unotify(2).
func (p Policy) Apply() (listener int, err error) {
	filter := p.filter()
	program := unix.SockFprog{Len: uint16(len(filter)), Filter: &filter[0]}
	// A call that is being decided is not repeated because of a signal. Kernels before 5.19 lack that flag.
	const atOnce = unix.SECCOMP_FILTER_FLAG_NEW_LISTENER | unix.SECCOMP_FILTER_FLAG_WAIT_KILLABLE_RECV
	for _, flags := range []uintptr{atOnce, unix.SECCOMP_FILTER_FLAG_NEW_LISTENER} {
		fd, _, errno := unix.Syscall(
			unix.SYS_SECCOMP, unix.SECCOMP_SET_MODE_FILTER, flags, uintptr(unsafe.Pointer(&program)))
		switch errno {
		case 0:
			return int(fd), nil
		case unix.EINVAL:
		default:
			return -1, fmt.Errorf("limit system calls: %w", errno)
		}
	}
	return -1, fmt.Errorf("limit system calls: %w", unix.EINVAL)
}

// filter returns the BPF program that decides a call described by struct seccomp_data.
func (p Policy) filter() []unix.SockFilter {
	filter := []unix.SockFilter{load(archOffset)}
	for _, a := range architectures {
		section := p.section(a)
		// A jump that depends on a comparison reaches 255 instructions.
		filter = append(filter, jump(unix.BPF_JEQ, uint32(a.ID), 1, 0), jumpAlways(len(section)))
		filter = append(filter, section...)
	}
	return append(filter, result(unix.SECCOMP_RET_USER_NOTIF))
}

// section returns the instructions for the calls of an architecture.
func (p Policy) section(a *arch.Info) []unix.SockFilter {
	section := append([]unix.SockFilter{load(numberOffset)}, p.checkArguments(a)...)
	isAllowed := func(name string) bool { return slices.Contains(p.allowed, name) }
	probed := slices.DeleteFunc(slices.Clone(probedCalls), isAllowed)
	for _, list := range []struct {
		names  []string
		action uint32
	}{{p.allowed, unix.SECCOMP_RET_ALLOW}, {probed, failure(unix.ENOSYS)}} {
		for _, r := range ranges(a, list.names) {
			section = append(section,
				jump(unix.BPF_JGE, r.first, 0, 2), jump(unix.BPF_JGT, r.last, 1, 0), result(list.action))
		}
	}
	return append(section, result(unix.SECCOMP_RET_USER_NOTIF))
}

// numberRange is a range of numbers of system calls.
type numberRange struct{ first, last uint32 }

// ranges returns the numbers that names have on an architecture. Names that it lacks are skipped.
func ranges(a *arch.Info, names []string) (list []numberRange) {
	var numbers []uint32
	for _, name := range names {
		if number, found := a.SyscallNames[name]; found {
			numbers = append(numbers, uint32(number))
		}
	}
	slices.Sort(numbers)
	for _, number := range slices.Compact(numbers) {
		if last := len(list) - 1; last >= 0 && list[last].last == number-1 {
			list[last].last = number
		} else {
			list = append(list, numberRange{number, number})
		}
	}
	return list
}

// CallName returns the name of a system call of an architecture (AUDIT_ARCH_*), "" if it is unknown, and the name of
// the architecture, or its number.
func CallName(architecture uint32, number int32) (call, name string) {
	for _, a := range architectures {
		if uint32(a.ID) == architecture {
			return a.SyscallNumbers[int(number)], a.Name
		}
	}
	return "", fmt.Sprintf("%#x", architecture)
}

// errnoOf returns the error of a call that is not permitted. A call without a name is newer than the lists.
func errnoOf(call string) unix.Errno {
	if call == "" || slices.Contains(missingCalls, call) {
		return unix.ENOSYS
	}
	return unix.EPERM
}
