package confine

import (
	"slices"

	"golang.org/x/sys/unix"
)

// Offsets in struct seccomp_data of the lower halves of what a filter examines, on little-endian machines.
const (
	numberOffset    = 0
	archOffset      = 4
	argumentsOffset = 16
)

func load(offset uint32) unix.SockFilter {
	return unix.SockFilter{Code: unix.BPF_LD | unix.BPF_W | unix.BPF_ABS, K: offset}
}

// loadArgument loads the lower half of an argument, which is what the kernel uses of an int.
func loadArgument(n uint32) unix.SockFilter { return load(argumentsOffset + 8*n) }

// jump skips yes or no instructions.
func jump(code uint16, k uint32, yes, no int) unix.SockFilter {
	return unix.SockFilter{Code: unix.BPF_JMP | code | unix.BPF_K, K: k, Jt: uint8(yes), Jf: uint8(no)}
}

func and(k uint32) unix.SockFilter {
	return unix.SockFilter{Code: unix.BPF_ALU | unix.BPF_AND | unix.BPF_K, K: k}
}

func result(k uint32) unix.SockFilter { return unix.SockFilter{Code: unix.BPF_RET | unix.BPF_K, K: k} }

func failure(errno unix.Errno) uint32 { return unix.SECCOMP_RET_ERRNO | uint32(errno) }

// returnIf returns instructions that end the filter if the loaded word is one of the values.
func returnIf(k uint32, values ...uint32) (program []unix.SockFilter) {
	for _, value := range values {
		program = append(program, jump(unix.BPF_JEQ, value, 0, 1), result(k))
	}
	return program
}

// nsfsType is the type of the ioctls of namespaces (NSIO, ioctl_nsfs(2)), in the second byte of a command.
const nsfsType = 0xb7

// socketFamilies are the families of sockets(2) that programs for hardware and boot loaders use. Others would have the
// kernel load a module, or lead to the hypervisor (AF_VSOCK).
var socketFamilies = []uint32{unix.AF_UNIX, unix.AF_INET, unix.AF_INET6, unix.AF_PACKET, unix.AF_ALG}

// netlinkProtocols are the protocols of netlink(7) that such programs use: addresses and links, statistics of sockets,
// generic ones such as devlink and ethtool, RDMA, and cryptography. Others forge uevents, attach iSCSI disks, or change
// the audit and the firewall.
var netlinkProtocols = []uint32{
	unix.NETLINK_ROUTE, unix.NETLINK_SOCK_DIAG, unix.NETLINK_GENERIC, unix.NETLINK_RDMA, unix.NETLINK_CRYPTO,
}

// checkArguments returns instructions that decide calls whose arguments matter, and continue with other calls, whose
// number is loaded. ioctl and socket are the numbers of these calls. socketcall(2) of 32-bit programs has its arguments
// in memory, which a filter cannot read.
//
// The ioctls that fail return other mount namespaces to a program with CAP_SYS_ADMIN (NS_MNT_GET_NEXT), or enter text
// into a terminal as its user would (TIOCSTI, TIOCLINUX).
func checkArguments(ioctl, socket uint32) []unix.SockFilter {
	commands := slices.Concat(
		[]unix.SockFilter{loadArgument(1)},
		returnIf(failure(unix.EPERM), unix.TIOCSTI, unix.TIOCLINUX),
		[]unix.SockFilter{and(0xff00)},
		returnIf(failure(unix.EPERM), nsfsType<<8),
		[]unix.SockFilter{result(unix.SECCOMP_RET_ALLOW)},
	)
	protocols := slices.Concat(
		[]unix.SockFilter{loadArgument(2)},
		returnIf(unix.SECCOMP_RET_ALLOW, netlinkProtocols...),
		[]unix.SockFilter{result(failure(unix.EPERM))},
	)
	families := slices.Concat(
		[]unix.SockFilter{loadArgument(0), jump(unix.BPF_JEQ, unix.AF_NETLINK, 0, len(protocols))},
		protocols,
		returnIf(unix.SECCOMP_RET_ALLOW, socketFamilies...),
		[]unix.SockFilter{result(failure(unix.EAFNOSUPPORT))},
	)
	return slices.Concat(
		[]unix.SockFilter{jump(unix.BPF_JEQ, ioctl, 0, len(commands))}, commands,
		[]unix.SockFilter{jump(unix.BPF_JEQ, socket, 0, len(families))}, families,
	)
}
