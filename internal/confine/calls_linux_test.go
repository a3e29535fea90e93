package confine

import (
	"fmt"
	"runtime"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"
)

// The numbers of the calls are those of the machine that runs the test.
func TestCallTables(t *testing.T) {
	arch := map[string]uint32{"amd64": unix.AUDIT_ARCH_X86_64, "arm64": unix.AUDIT_ARCH_AARCH64}[runtime.GOARCH]
	want := []uint32{
		unix.SYS_MOUNT, unix.SYS_UMOUNT2, unix.SYS_PIVOT_ROOT, unix.SYS_SETNS, unix.SYS_SYSLOG, unix.SYS_BPF,
		unix.SYS_PERF_EVENT_OPEN, unix.SYS_SWAPON, unix.SYS_SWAPOFF, unix.SYS_FANOTIFY_INIT, unix.SYS_FANOTIFY_MARK,
		unix.SYS_OPEN_BY_HANDLE_AT, unix.SYS_USERFAULTFD, unix.SYS_PTRACE, unix.SYS_PROCESS_VM_READV,
		unix.SYS_PROCESS_VM_WRITEV, unix.SYS_IO_URING_SETUP, unix.SYS_IO_URING_ENTER,
		unix.SYS_IO_URING_REGISTER, unix.SYS_OPEN_TREE, unix.SYS_MOVE_MOUNT,
		unix.SYS_FSOPEN, unix.SYS_FSCONFIG, unix.SYS_FSMOUNT, unix.SYS_FSPICK,
		unix.SYS_PIDFD_GETFD, unix.SYS_MOUNT_SETATTR,
		unix.SYS_OPEN_TREE_ATTR,
	}
	for _, table := range callTables {
		if table.arch == arch {
			if diff := cmp.Diff(want, table.denied); diff != "" {
				t.Errorf("calls of %s differ (-want +got):\n%s", runtime.GOARCH, diff)
			}
		}
	}
	if last := uint32(unix.SYS_RSEQ_SLICE_YIELD); last != lastKnown {
		t.Errorf("got %d as the last call, want %d", lastKnown, last)
	}
}

// decide runs a filter on a call with arguments.
func decide(t *testing.T, filter []unix.SockFilter, arch, number uint32, arguments ...uint32) uint32 {
	t.Helper()
	data := map[uint32]uint32{numberOffset: number, archOffset: arch} // by offset
	for i, argument := range arguments {
		data[uint32(argumentsOffset+8*i)] = argument
	}
	var word uint32
	for at := 0; ; at++ {
		next := func(yes bool) {
			if yes {
				at += int(filter[at].Jt)
			} else {
				at += int(filter[at].Jf)
			}
		}
		switch f := filter[at]; f.Code {
		case unix.BPF_LD | unix.BPF_W | unix.BPF_ABS:
			word = data[f.K]
		case unix.BPF_ALU | unix.BPF_AND | unix.BPF_K:
			word &= f.K
		case unix.BPF_JMP | unix.BPF_JEQ | unix.BPF_K:
			next(word == f.K)
		case unix.BPF_JMP | unix.BPF_JGE | unix.BPF_K:
			next(word >= f.K)
		case unix.BPF_JMP | unix.BPF_JGT | unix.BPF_K:
			next(word > f.K)
		case unix.BPF_JMP | unix.BPF_JSET | unix.BPF_K:
			next(word&f.K != 0)
		case unix.BPF_JMP | unix.BPF_JA:
			at += int(f.K)
		case unix.BPF_RET | unix.BPF_K:
			return f.K
		default:
			t.Fatalf("instruction %d has code %#x", at, f.Code)
		}
	}
}

// Both filters deny ioctls and sockets by their arguments, on every architecture.
func TestArguments(t *testing.T) {
	const allow = uint32(unix.SECCOMP_RET_ALLOW)
	type tested struct {
		name    string
		filter  []unix.SockFilter
		arch    uint32
		calls   argumentCalls
		uevents uint32 // action for NETLINK_KOBJECT_UEVENT
	}
	own := argumentCalls{unix.SYS_IOCTL, unix.SYS_SOCKET, unix.SYS_SOCKETPAIR}
	all := []tested{{
		"supervised", superviseFilter(unix.AUDIT_ARCH_X86_64), unix.AUDIT_ARCH_X86_64, own,
		failure(unix.EPROTONOSUPPORT),
	}}
	for _, table := range callTables {
		all = append(all, tested{
			fmt.Sprintf("arch %#x", table.arch), callFilter(callTables), table.arch, table.calls, allow,
		})
	}
	for _, f := range all {
		for command, want := range map[uint32]uint32{
			unix.TIOCSTI: failure(unix.EPERM), unix.TIOCLINUX: failure(unix.EPERM), unix.TIOCGWINSZ: allow,
			unix.TIOCCONS: failure(unix.EPERM),
			0xb701:        failure(unix.EPERM), // NS_GET_USERNS
			0x8010b70b:    failure(unix.EPERM), // NS_MNT_GET_NEXT
			0x4b70:        allow, 0x000000b7: allow, 0: allow,
		} {
			if got := decide(t, f.filter, f.arch, f.calls.ioctl, 3, command); got != want {
				t.Errorf("%s: ioctl %#x: got %#x, want %#x", f.name, command, got, want)
			}
		}
		for _, s := range []struct{ family, protocol, want uint32 }{
			{unix.AF_UNIX, 0, allow},
			{unix.AF_INET, unix.IPPROTO_TCP, allow},
			{unix.AF_INET6, 0, allow},
			{unix.AF_NETLINK, unix.NETLINK_ROUTE, allow},
			{unix.AF_NETLINK, unix.NETLINK_GENERIC, allow},
			{unix.AF_NETLINK, unix.NETLINK_KOBJECT_UEVENT, f.uevents},
			{unix.AF_NETLINK, unix.NETLINK_ISCSI, failure(unix.EPROTONOSUPPORT)},
			{unix.AF_NETLINK, unix.NETLINK_SCSITRANSPORT, failure(unix.EPROTONOSUPPORT)},
			{unix.AF_NETLINK, unix.NETLINK_AUDIT, failure(unix.EPROTONOSUPPORT)},
			{unix.AF_VSOCK, 0, failure(unix.EAFNOSUPPORT)},
			{unix.AF_TIPC, 0, failure(unix.EAFNOSUPPORT)},
			{0, 0, failure(unix.EAFNOSUPPORT)},
		} {
			if got := decide(t, f.filter, f.arch, f.calls.socket, s.family, unix.SOCK_RAW, s.protocol); got != s.want {
				t.Errorf("%s: socket of family %d, protocol %d: got %#x, want %#x",
					f.name, s.family, s.protocol, got, s.want)
			}
		}
	}
	for _, f := range all {
		for family, want := range map[uint32]uint32{
			unix.AF_UNIX: allow, unix.AF_TIPC: failure(unix.EAFNOSUPPORT), unix.AF_INET: failure(unix.EAFNOSUPPORT),
		} {
			if got := decide(t, f.filter, f.arch, f.calls.socketpair, family, unix.SOCK_STREAM); got != want {
				t.Errorf("%s: socketpair of family %d: got %#x, want %#x", f.name, family, got, want)
			}
		}
	}
	// The tables have the numbers of this machine.
	arch := map[string]uint32{"amd64": unix.AUDIT_ARCH_X86_64, "arm64": unix.AUDIT_ARCH_AARCH64}[runtime.GOARCH]
	for _, table := range callTables {
		if table.arch == arch && table.calls != own {
			t.Errorf("got the calls %+v, want %+v", table.calls, own)
		}
	}
}

// The filter allows and denies each call of each architecture as its table says.
func TestCallFilter(t *testing.T) {
	filter := callFilter(callTables)
	const denied, unknown = unix.SECCOMP_RET_ERRNO | uint32(unix.EPERM), unix.SECCOMP_RET_ERRNO | uint32(unix.ENOSYS)
	for _, table := range callTables {
		for number := range uint32(1000) {
			want := uint32(unix.SECCOMP_RET_ALLOW)
			if slices.Contains(table.denied, number) {
				want = denied
			} else if number == table.calls.socket || number == table.calls.socketpair {
				want = failure(unix.EAFNOSUPPORT) // of family 0
			} else if number > lastKnown {
				want = unknown
			}
			if got := decide(t, filter, table.arch, number); got != want {
				t.Errorf("arch %#x, call %d: got %#x, want %#x", table.arch, number, got, want)
			}
		}
		want := unknown
		if table.private != 0 {
			want = unix.SECCOMP_RET_ALLOW
		}
		if got := decide(t, filter, table.arch, 0x0f0002); got != want {
			t.Errorf("arch %#x, private call: got %#x, want %#x", table.arch, got, want)
		}
		if got := decide(t, filter, table.arch, 0x40000000|165); table.private == 0 && got != unknown {
			t.Errorf("arch %#x, call of x32: got %#x, want %#x", table.arch, got, unknown)
		}
	}
	if got := decide(t, filter, unix.AUDIT_ARCH_S390X, 1); got != unix.SECCOMP_RET_KILL_PROCESS {
		t.Errorf("other architecture: got %#x, want %#x", got, uint32(unix.SECCOMP_RET_KILL_PROCESS))
	}
}
