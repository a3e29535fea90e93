package confine

import (
	"slices"
	"testing"

	"golang.org/x/sys/unix"
)

// call runs the filter of SuperviseMounts on a call with flags as its fourth argument.
func call(t *testing.T, arch, number, flags uint32) uint32 {
	t.Helper()
	return decide(t, superviseFilter(unix.AUDIT_ARCH_X86_64), arch, number, 0, 0, 0, flags)
}

// Calls that mount wait for a reply; the kernel interprets the flags in the same order (path_mount of fs/namespace.c).
func TestSuperviseFilter(t *testing.T) {
	const ask, allow = uint32(unix.SECCOMP_RET_USER_NOTIF), uint32(unix.SECCOMP_RET_ALLOW)
	for flags, want := range map[uint32]uint32{
		0: ask, unix.MS_RDONLY | unix.MS_NOSUID: ask, unix.MS_REMOUNT: ask, unix.MS_REMOUNT | unix.MS_BIND: ask,
		MountMagic: ask, MountMagic | unix.MS_RDONLY: ask, MountMagic | unix.MS_BIND: allow,
		MountMagic | unix.MS_MOVE: allow, MountMagic | unix.MS_REMOUNT | unix.MS_BIND: ask,
		unix.MS_BIND:               allow,
		unix.MS_BIND | unix.MS_REC: allow, unix.MS_MOVE: allow, unix.MS_PRIVATE | unix.MS_REC: allow,
		unix.MS_SHARED: allow, unix.MS_SLAVE: allow, unix.MS_UNBINDABLE: allow, unix.MS_REMOUNT | unix.MS_PRIVATE: ask,
	} {
		if got := call(t, unix.AUDIT_ARCH_X86_64, unix.SYS_MOUNT, flags); got != want {
			t.Errorf("mount with flags %#x: got %#x, want %#x", flags, got, want)
		}
	}
	const missing, denied = unix.SECCOMP_RET_ERRNO | uint32(unix.ENOSYS), unix.SECCOMP_RET_ERRNO | uint32(unix.EPERM)
	for number := range uint32(1000) {
		want := allow
		switch {
		case number == unix.SYS_MOUNT:
			want = ask
		case number == unix.SYS_SOCKET, number == unix.SYS_SOCKETPAIR:
			want = failure(unix.EAFNOSUPPORT) // of family 0
		case slices.Contains(supervisedMissing, number) || number > lastKnown:
			want = missing
		case slices.Contains(supervisedDenied, number):
			want = denied
		}
		if got := call(t, unix.AUDIT_ARCH_X86_64, number, 0); got != want {
			t.Errorf("call %d: got %#x, want %#x", number, got, want)
		}
	}
	if got := call(t, unix.AUDIT_ARCH_X86_64, 0x40000000|unix.SYS_MOUNT, 0); got != missing {
		t.Errorf("mount of x32: got %#x, want %#x", got, missing)
	}
	if got := call(t, unix.AUDIT_ARCH_I386, 21, 0); got != unix.SECCOMP_RET_KILL_PROCESS {
		t.Errorf("mount of i386: got %#x, want %#x", got, uint32(unix.SECCOMP_RET_KILL_PROCESS))
	}
}
