package confine

import (
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
		unix.SYS_OPEN_BY_HANDLE_AT, unix.SYS_USERFAULTFD, unix.SYS_IO_URING_SETUP, unix.SYS_IO_URING_ENTER,
		unix.SYS_IO_URING_REGISTER, unix.SYS_OPEN_TREE, unix.SYS_MOVE_MOUNT,
		unix.SYS_FSOPEN, unix.SYS_FSCONFIG, unix.SYS_FSMOUNT, unix.SYS_FSPICK, unix.SYS_MOUNT_SETATTR,
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

// decide runs a filter on a call.
func decide(t *testing.T, filter []unix.SockFilter, arch, number uint32) uint32 {
	t.Helper()
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
			word = map[uint32]uint32{0: number, 4: arch}[f.K]
		case unix.BPF_JMP | unix.BPF_JEQ | unix.BPF_K:
			next(word == f.K)
		case unix.BPF_JMP | unix.BPF_JGE | unix.BPF_K:
			next(word >= f.K)
		case unix.BPF_JMP | unix.BPF_JGT | unix.BPF_K:
			next(word > f.K)
		case unix.BPF_RET | unix.BPF_K:
			return f.K
		default:
			t.Fatalf("instruction %d has code %#x", at, f.Code)
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
