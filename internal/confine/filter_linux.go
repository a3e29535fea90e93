package confine

import (
	"slices"

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

// loadArgument loads the lower half of an argument, which is what the kernel uses of an int.
func loadArgument(n uint32) unix.SockFilter { return load(argumentsOffset + 8*n) }

// jump skips yes instructions if the comparison of the loaded word with k is true, no instructions otherwise.
func jump(code uint16, k uint32, yes, no int) unix.SockFilter {
	return unix.SockFilter{Code: unix.BPF_JMP | code | unix.BPF_K, K: k, Jt: uint8(yes), Jf: uint8(no)}
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

// nsfsType is the type of the ioctls of namespaces (NSIO, ioctl_nsfs(2)), in the second byte of a command.
const nsfsType = 0xb7

// socketFamilies are the families of socket(2) that tools for hardware and boot loaders use. Others lead to the
// hypervisor (AF_VSOCK), or to protocols that no such tool needs.
var socketFamilies = []uint32{unix.AF_UNIX, unix.AF_INET, unix.AF_INET6, unix.AF_PACKET, unix.AF_ALG}

// netlinkProtocols are the protocols of netlink(7) that such tools use: addresses and links, statistics of sockets,
// generic ones such as devlink and ethtool, and cryptography. Others attach iSCSI disks, or change audit and firewall.
var netlinkProtocols = []uint32{
	unix.NETLINK_ROUTE, unix.NETLINK_SOCK_DIAG, unix.NETLINK_GENERIC, unix.NETLINK_CRYPTO,
}

// hardwareProtocols are further protocols for tools of hardware: RDMA, and the uevents for which libudev and libusb
// listen. A program with CAP_SYS_ADMIN can also forge uevents. They change nothing, because the ramdisk reads the
// device in sysfs.
var hardwareProtocols = []uint32{unix.NETLINK_RDMA, unix.NETLINK_KOBJECT_UEVENT}

// argumentCalls are the numbers of the calls that checkArguments decides.
type argumentCalls struct {
	ioctl, socket, socketpair uint32
}

// checkArguments returns instructions that allow or deny calls by their arguments, and continue after them for other
// calls. The number of the call must be loaded, and stays loaded for other calls. protocols lists the permitted
// protocols of netlink.
//
// The ioctls that fail return other mount namespaces to a program with CAP_SYS_ADMIN (NS_MNT_GET_NEXT), enter text into
// a terminal as its user would (TIOCSTI, TIOCLINUX), or redirect the console (TIOCCONS). Sockets of other families fail
// as if the kernel lacked these. A filter cannot read the arguments of socketcall(2), which are in memory: every
// program on amd64 can call it as a program of i386 does.
func checkArguments(calls argumentCalls, protocols []uint32) []unix.SockFilter {
	unsupported := result(failure(unix.EAFNOSUPPORT))
	commands := slices.Concat(
		[]unix.SockFilter{loadArgument(1)},
		returnIf(failure(unix.EPERM), unix.TIOCSTI, unix.TIOCLINUX, unix.TIOCCONS),
		[]unix.SockFilter{and(0xff00)},
		returnIf(failure(unix.EPERM), nsfsType<<8),
		[]unix.SockFilter{result(unix.SECCOMP_RET_ALLOW)},
	)
	netlink := slices.Concat(
		[]unix.SockFilter{loadArgument(2)},
		returnIf(unix.SECCOMP_RET_ALLOW, protocols...),
		[]unix.SockFilter{result(failure(unix.EPROTONOSUPPORT))}, // which PAM and libaudit ignore
	)
	families := slices.Concat(
		[]unix.SockFilter{loadArgument(0), jump(unix.BPF_JEQ, unix.AF_NETLINK, 0, len(netlink))},
		netlink,
		returnIf(unix.SECCOMP_RET_ALLOW, socketFamilies...),
		[]unix.SockFilter{unsupported},
	)
	pairs := slices.Concat(
		[]unix.SockFilter{loadArgument(0)},
		returnIf(unix.SECCOMP_RET_ALLOW, unix.AF_UNIX),
		[]unix.SockFilter{unsupported},
	)
	return slices.Concat(
		[]unix.SockFilter{jump(unix.BPF_JEQ, calls.ioctl, 0, len(commands))}, commands,
		[]unix.SockFilter{jump(unix.BPF_JEQ, calls.socket, 0, len(families))}, families,
		[]unix.SockFilter{jump(unix.BPF_JEQ, calls.socketpair, 0, len(pairs))}, pairs,
	)
}
