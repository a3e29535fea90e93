package confine

import (
	"slices"

	"github.com/elastic/go-seccomp-bpf/arch"
	"golang.org/x/sys/unix"
)

// Offsets in struct seccomp_data. At argumentsOffset is the lower half of the first argument, on machines that are
// little-endian.
const (
	numberOffset    = 0
	archOffset      = 4
	argumentsOffset = 16
)

// load loads a word.
func load(offset uint32) unix.SockFilter {
	return unix.SockFilter{Code: unix.BPF_LD | unix.BPF_W | unix.BPF_ABS, K: offset}
}

// loadArgument loads the lower half of an argument, which the kernel uses of an int.
func loadArgument(n uint32) unix.SockFilter { return load(argumentsOffset + 8*n) }

// jump skips yes instructions if the comparison of the loaded word with k is true, no instructions otherwise.
func jump(code uint16, k uint32, yes, no int) unix.SockFilter {
	return unix.SockFilter{Code: unix.BPF_JMP | code | unix.BPF_K, K: k, Jt: uint8(yes), Jf: uint8(no)}
}

// jumpAlways skips n instructions.
func jumpAlways(n int) unix.SockFilter {
	return unix.SockFilter{Code: unix.BPF_JMP | unix.BPF_JA, K: uint32(n)}
}

// and clears the bits of the loaded word that k lacks.
func and(k uint32) unix.SockFilter {
	return unix.SockFilter{Code: unix.BPF_ALU | unix.BPF_AND | unix.BPF_K, K: k}
}

// result ends the filter with an action.
func result(k uint32) unix.SockFilter { return unix.SockFilter{Code: unix.BPF_RET | unix.BPF_K, K: k} }

// failure is the action by which a call fails.
func failure(errno unix.Errno) uint32 { return unix.SECCOMP_RET_ERRNO | uint32(errno) }

// returnIf returns instructions that end the filter with an action if the loaded word is one of the values.
func returnIf(action uint32, values ...uint32) (program []unix.SockFilter) {
	for _, value := range values {
		program = append(program, jump(unix.BPF_JEQ, value, 0, 1), result(action))
	}
	return program
}

// namespaceType is the type of the ioctls of namespaces (NSIO, ioctl_nsfs(2)), in the second byte of a command.
const namespaceType = 0xb7

// fileSystemCommands are the ioctls that freeze, thaw and shut down a file system: FIFREEZE, FITHAW, FS_IOC_SHUTDOWN.
var fileSystemCommands = []uint32{0xc0045877, 0xc0045878, 0x8004587d}

// socketFamilies are the families of socket(2) that tools for hardware and boot loaders use. Others lead to the
// hypervisor (AF_VSOCK), or to protocols that no such tool needs. splice(2) passes pages of files that a program can
// only read to AF_ALG. The root of the ramdisk is such pages, and a bug of the kernel wrote to them (CVE-2026-31431).
var socketFamilies = []uint32{unix.AF_UNIX, unix.AF_INET, unix.AF_INET6, unix.AF_PACKET}

// netlinkProtocols are the protocols of netlink(7) that such tools use: addresses and links, statistics of sockets,
// and generic ones such as devlink and ethtool. Others attach iSCSI disks, or change audit and firewall.
var netlinkProtocols = []uint32{unix.NETLINK_ROUTE, unix.NETLINK_SOCK_DIAG, unix.NETLINK_GENERIC}

// hardwareProtocols are further protocols for tools of hardware: RDMA, and the uevents for which libudev and libusb
// listen. A program with CAP_SYS_ADMIN can also forge uevents. They change nothing, because the ramdisk reads the
// device in sysfs.
var hardwareProtocols = []uint32{unix.NETLINK_RDMA, unix.NETLINK_KOBJECT_UEVENT}

// newNamespaces are the flags of clone(2) and unshare(2) that make namespaces.
const newNamespaces = unix.CLONE_NEWNS | unix.CLONE_NEWCGROUP | unix.CLONE_NEWUTS | unix.CLONE_NEWIPC |
	unix.CLONE_NEWUSER | unix.CLONE_NEWPID | unix.CLONE_NEWNET | unix.CLONE_NEWTIME

// decision decides a system call by its arguments.
type decision struct {
	call         string
	instructions []unix.SockFilter
}

// checkArguments returns instructions that decide calls by their arguments, and continue after them for other calls.
// The number of the call must be loaded, and stays loaded for other calls.
//
// These ioctls fail: ioctls of namespaces (NS_MNT_GET_NEXT returns other mount namespaces to a program with
// CAP_SYS_ADMIN), those that enter text into a terminal (TIOCSTI, TIOCLINUX) or redirect the console (TIOCCONS), and
// fileSystemCommands unless p.fileSystems is set. Sockets of other families fail as if the kernel lacked them. clone(2)
// and unshare(2) wait for a reply if they make a namespace that p.namespaces lacks. No policy permits user namespaces,
// in which a program has all capabilities.
func (p Policy) checkArguments(a *arch.Info) (program []unix.SockFilter) {
	const wait, allow = unix.SECCOMP_RET_USER_NOTIF, unix.SECCOMP_RET_ALLOW
	unsupported := result(failure(unix.EAFNOSUPPORT))
	commands := []uint32{unix.TIOCSTI, unix.TIOCLINUX, unix.TIOCCONS}
	if !p.fileSystems {
		commands = append(commands, fileSystemCommands...)
	}
	netlink := slices.Concat(
		[]unix.SockFilter{loadArgument(2)},
		returnIf(allow, p.protocols...),
		[]unix.SockFilter{result(failure(unix.EPROTONOSUPPORT))}, // which PAM and libaudit ignore
	)
	flags := slices.Concat(
		[]unix.SockFilter{loadArgument(0), jump(unix.BPF_JSET, newNamespaces&^p.namespaces, 0, 1)},
		[]unix.SockFilter{result(wait), result(allow)},
	)
	calls := []decision{
		{"ioctl", slices.Concat(
			[]unix.SockFilter{loadArgument(1)},
			returnIf(failure(unix.EPERM), commands...),
			[]unix.SockFilter{and(0xff00)},
			returnIf(failure(unix.EPERM), namespaceType<<8),
			[]unix.SockFilter{result(allow)},
		)},
		{"socket", slices.Concat(
			[]unix.SockFilter{loadArgument(0), jump(unix.BPF_JEQ, unix.AF_NETLINK, 0, len(netlink))},
			netlink,
			returnIf(allow, socketFamilies...),
			[]unix.SockFilter{unsupported},
		)},
		{"socketpair", slices.Concat(
			[]unix.SockFilter{loadArgument(0)}, returnIf(allow, unix.AF_UNIX), []unix.SockFilter{unsupported},
		)},
		{"clone", flags},
		{"unshare", flags},
	}
	if p.mounts {
		calls = append(calls, decision{CallMount, mountDecision})
	}
	for _, c := range calls {
		if number, found := a.SyscallNames[c.call]; found {
			program = append(program, jump(unix.BPF_JEQ, uint32(number), 0, len(c.instructions)))
			program = append(program, c.instructions...)
		}
	}
	return program
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

// mountDecision makes mount(2) wait for a reply if it mounts a file system or changes the options of a mount. Bind
// mounts, moves, and changes of the propagation are permitted.
var mountDecision = []unix.SockFilter{
	loadArgument(3),
	and(magicMask),
	jump(unix.BPF_JEQ, MountMagic, 0, 3),
	loadArgument(3),
	and(^uint32(magicMask)), // the kernel ignores the flags in the magic value
	jumpAlways(1),
	loadArgument(3),
	jump(unix.BPF_JSET, unix.MS_REMOUNT, 1, 0),
	jump(unix.BPF_JSET, mountElsewhere, 1, 0),
	result(unix.SECCOMP_RET_USER_NOTIF),
	result(unix.SECCOMP_RET_ALLOW),
}
