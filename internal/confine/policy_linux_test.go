package confine

import (
	"slices"
	"testing"

	"github.com/elastic/go-seccomp-bpf/arch"
	"golang.org/x/sys/unix"
)

const (
	allow = uint32(unix.SECCOMP_RET_ALLOW)
	wait  = uint32(unix.SECCOMP_RET_USER_NOTIF)
)

// decide runs a filter on a call with arguments.
func decide(t *testing.T, filter []unix.SockFilter, architecture, number uint32, arguments ...uint32) uint32 {
	t.Helper()
	data := map[uint32]uint32{numberOffset: number, archOffset: architecture} // by offset
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

// dangerous are calls by which a program with CAP_SYS_ADMIN could leave its namespaces, read the kernel's memory, or
// change the machine.
var dangerous = []string{
	"_sysctl", "acct", "add_key", "adjtimex", "bpf", "clock_settime", "clone3", "create_module", "delete_module",
	"fanotify_init", "fanotify_mark", "finit_module", "fsconfig", "fsmount", "fsopen", "fspick", "init_module",
	"io_uring_enter", "io_uring_register", "io_uring_setup", "kcmp", "kexec_file_load", "kexec_load", "keyctl",
	"listmount", "lookup_dcookie", "modify_ldt", "mount_setattr", "nfsservctl", "open_by_handle_at",
	"open_tree_attr", "perf_event_open", "pidfd_getfd", "process_madvise", "process_vm_readv", "process_vm_writev",
	"ptrace", "quotactl", "quotactl_fd", "reboot", "request_key", "setdomainname", "sethostname", "setns",
	"settimeofday", "socketcall", "statmount", "stime", "swapoff", "swapon", "syslog", "uselib", "userfaultfd",
	"vhangup", "vm86", "vm86old",
}

// probed are calls for whose failure with ENOSYS every C library and mount(8) are prepared.
var probed = []string{
	"clone3", "fsconfig", "fsmount", "fsopen", "fspick", "listmount", "mount_setattr", "move_mount", "open_tree",
	"open_tree_attr", "statmount",
}

// mounting are calls that an installer needs as well.
var mounting = []string{"mount", "move_mount", "open_tree", "pivot_root", "umount", "umount2"}

// Programs may make no call of dangerous and mounting, by any architecture's number. Every call of the kernels that
// came after the list waits for a reply, too.
func TestDangerousCalls(t *testing.T) {
	if err := CheckCalls(slices.Concat(dangerous, mounting)); err != nil {
		t.Fatal(err)
	}
	for name, tt := range map[string]struct {
		policy        Policy
		waits, passes []string
	}{
		"program":   {ProgramPolicy(), slices.Concat(dangerous, mounting), []string{"iopl", "read"}},
		"wider":     {ProgramPolicy("bpf", "swapon"), mounting, []string{"bpf", "swapon", "read"}},
		"installer": {InstallerPolicy(), slices.Concat(dangerous, []string{"mount", "iopl", "ioperm"}), mounting[1:]},
	} {
		filter := tt.policy.filter()
		if len(filter) > unix.BPF_MAXINSNS {
			t.Fatalf("%s: got %d instructions, want at most %d", name, len(filter), unix.BPF_MAXINSNS)
		}
		for _, a := range architectures {
			for _, list := range []struct {
				names []string
				want  uint32
			}{{tt.waits, wait}, {tt.passes, allow}} {
				for _, call := range list.names {
					number, found := a.SyscallNames[call]
					want := list.want
					if want == wait && slices.Contains(probed, call) {
						want = failure(unix.ENOSYS)
					}
					if got := decide(t, filter, uint32(a.ID), uint32(number)); found && got != want {
						t.Errorf("%s, %s of %s: got %#x, want %#x", name, call, a.Name, got, want)
					}
				}
			}
			for _, number := range []uint32{472, 1000, 0x40000000, 0x40000000 | 165, 0xffffffff} {
				if got := decide(t, filter, uint32(a.ID), number); got != wait {
					t.Errorf("%s, call %#x of %s: got %#x, want %#x", name, number, a.Name, got, wait)
				}
			}
		}
		if got := decide(t, filter, unix.AUDIT_ARCH_S390X, 1); got != wait {
			t.Errorf("%s, other architecture: got %#x, want %#x", name, got, wait)
		}
	}
}

// The filter has the same result for each number as its list.
func TestFilterRanges(t *testing.T) {
	p := ProgramPolicy()
	filter := p.filter()
	byArguments := map[string]uint32{ // with arguments that are 0
		"socket": failure(unix.EAFNOSUPPORT), "socketpair": failure(unix.EAFNOSUPPORT),
	}
	for _, a := range architectures {
		for number := range 1000 {
			call, want := a.SyscallNumbers[number], wait
			if slices.Contains(p.allowed, call) {
				want = allow
			} else if slices.Contains(probed, call) {
				want = failure(unix.ENOSYS)
			}
			if result := byArguments[call]; result != 0 {
				want = result
			}
			if got := decide(t, filter, uint32(a.ID), uint32(number)); got != want {
				t.Errorf("%s, call %d, %s: got %#x, want %#x", a.Name, number, call, got, want)
			}
		}
	}
	cacheflush := decide(t, filter, unix.AUDIT_ARCH_ARM, 0x0f0002) // __ARM_NR_cacheflush
	if cacheflush != allow {
		t.Errorf("cacheflush of ARM: got %#x, want %#x", cacheflush, allow)
	}
}

// Each name in the lists exists and occurs once. Unknown names are errors.
func TestCallNames(t *testing.T) {
	for name, list := range map[string][]string{
		"programs": programCalls, "installers": installerCalls, "hardware": hardwareCalls,
		"probed": probedCalls, "missing": missingCalls,
	} {
		if err := CheckCalls(list); err != nil {
			t.Errorf("%s: %v", name, err)
		}
		if sorted := slices.Sorted(slices.Values(list)); len(slices.Compact(sorted)) != len(list) {
			t.Errorf("%s: got a call twice", name)
		}
	}
	if err := CheckCalls([]string{"read", "raed"}); err == nil {
		t.Error("got no error for an unknown name")
	}
	for call, number := range map[string]int{"read": unix.SYS_READ, "open_tree_attr": unix.SYS_OPEN_TREE_ATTR} {
		if a, err := arch.GetInfo(""); err != nil || a.SyscallNames[call] != number {
			t.Errorf("%s: got %d, %v, want %d", call, a.SyscallNames[call], err, number)
		}
	}
}

// The arguments of some calls decide, on every architecture.
func TestArguments(t *testing.T) {
	denied, unsupported := failure(unix.EPERM), failure(unix.EAFNOSUPPORT)
	noProtocol := failure(unix.EPROTONOSUPPORT)
	type arguments map[[3]uint32]uint32
	for _, tt := range []struct {
		name     string
		policy   Policy
		fsIoctl  uint32 // result of FIFREEZE
		uevents  uint32 // of NETLINK_KOBJECT_UEVENT
		mountNew uint32 // of a new mount namespace
	}{
		{"program", ProgramPolicy(), denied, allow, wait},
		{"installer", InstallerPolicy(), allow, noProtocol, allow},
	} {
		filter := tt.policy.filter()
		flags := arguments{
			{unix.CLONE_NEWUSER}: wait, {unix.CLONE_NEWUSER | unix.CLONE_NEWNS}: wait, {unix.CLONE_FS}: allow,
			{unix.CLONE_NEWNS}: tt.mountNew, {unix.CLONE_VM | unix.CLONE_THREAD}: allow,
			{unix.CLONE_NEWPID | uint32(unix.SIGCHLD)}: tt.mountNew, {uint32(unix.SIGCHLD)}: allow,
		}
		for call, list := range map[string]arguments{
			"ioctl": {
				{3, unix.TIOCSTI}: denied, {3, unix.TIOCLINUX}: denied, {3, unix.TIOCCONS}: denied,
				{3, unix.TIOCGWINSZ}: allow, {3, 0x4b70}: allow, {3, 0xb7}: allow, {3, 0}: allow,
				{3, 0xb701}:          denied,     // NS_GET_USERNS
				{3, 0x8010b70b}:      denied,     // NS_MNT_GET_NEXT
				{3, 0xc0045877}:      tt.fsIoctl, // FIFREEZE
				{3, 0xc0045878}:      tt.fsIoctl, // FITHAW
				{3, 0x801c581f}:      allow,      // FS_IOC_FSGETXATTR
				{3, 0x8004587d}:      tt.fsIoctl, // FS_IOC_SHUTDOWN
				{3, unix.BLKDISCARD}: allow,
				{3, unix.FICLONE}:    allow,
				{3, unix.BLKROSET}:   allow,
				{3, 0xc0484e41}:      allow, // NVME_IOCTL_ADMIN_CMD
			},
			"socket": {
				{unix.AF_UNIX, unix.SOCK_STREAM}: allow, {unix.AF_INET, unix.SOCK_STREAM, unix.IPPROTO_TCP}: allow,
				{unix.AF_INET6, unix.SOCK_DGRAM}: allow, {unix.AF_PACKET, unix.SOCK_RAW}: allow,
				{unix.AF_NETLINK, unix.SOCK_RAW, unix.NETLINK_ROUTE}:          allow,
				{unix.AF_NETLINK, unix.SOCK_RAW, unix.NETLINK_GENERIC}:        allow,
				{unix.AF_NETLINK, unix.SOCK_RAW, unix.NETLINK_KOBJECT_UEVENT}: tt.uevents,
				{unix.AF_NETLINK, unix.SOCK_RAW, unix.NETLINK_ISCSI}:          noProtocol,
				{unix.AF_NETLINK, unix.SOCK_RAW, unix.NETLINK_SCSITRANSPORT}:  noProtocol,
				{unix.AF_NETLINK, unix.SOCK_RAW, unix.NETLINK_AUDIT}:          noProtocol,
				{unix.AF_VSOCK}: unsupported, {unix.AF_ALG, unix.SOCK_SEQPACKET}: unsupported,
				{unix.AF_NETLINK, unix.SOCK_RAW, unix.NETLINK_CRYPTO}: noProtocol,
				{unix.AF_TIPC}: unsupported, {0}: unsupported,
			},
			"socketpair": {
				{unix.AF_UNIX}: allow, {unix.AF_TIPC}: unsupported, {unix.AF_INET}: unsupported,
			},
			"clone": flags, "unshare": flags,
		} {
			for _, a := range architectures {
				number, found := a.SyscallNames[call]
				if !found {
					t.Fatalf("%s has no %s", a.Name, call)
				}
				for values, want := range list {
					if got := decide(t, filter, uint32(a.ID), uint32(number), values[:]...); got != want {
						t.Errorf("%s: %s of %s with %#x: got %#x, want %#x", tt.name, call, a.Name, values, got, want)
					}
				}
			}
		}
	}
}

// Calls that mount wait for a reply; the kernel interprets the flags in the same order (path_mount of fs/namespace.c).
func TestMountFlags(t *testing.T) {
	filter := InstallerPolicy().filter()
	for flags, want := range map[uint32]uint32{
		0: wait, unix.MS_RDONLY | unix.MS_NOSUID: wait, unix.MS_REMOUNT: wait, unix.MS_REMOUNT | unix.MS_BIND: wait,
		MountMagic: wait, MountMagic | unix.MS_RDONLY: wait, MountMagic | unix.MS_BIND: allow,
		MountMagic | unix.MS_MOVE: allow, MountMagic | unix.MS_REMOUNT | unix.MS_BIND: wait,
		unix.MS_BIND:               allow,
		unix.MS_BIND | unix.MS_REC: allow, unix.MS_MOVE: allow, unix.MS_PRIVATE | unix.MS_REC: allow,
		unix.MS_SHARED: allow, unix.MS_SLAVE: allow, unix.MS_UNBINDABLE: allow, unix.MS_REMOUNT | unix.MS_PRIVATE: wait,
	} {
		for _, a := range architectures {
			number := uint32(a.SyscallNames[CallMount])
			if got := decide(t, filter, uint32(a.ID), number, 0, 0, 0, flags); got != want {
				t.Errorf("mount of %s with flags %#x: got %#x, want %#x", a.Name, flags, got, want)
			}
		}
	}
}
