package api

import (
	"cmp"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"
)

// The kernel accepts few connections before the agent does.
func TestBacklog(t *testing.T) {
	l, err := Listen(t.Context(), "127.0.0.1", 0)
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	raw, err := l.(syscall.Conn).SyscallConn()
	if err != nil {
		t.Fatal(err)
	}
	var info *unix.TCPInfo
	var infoErr error
	err = raw.Control(func(fd uintptr) {
		info, infoErr = unix.GetsockoptTCPInfo(int(fd), unix.IPPROTO_TCP, unix.TCP_INFO)
	})
	if err := cmp.Or(err, infoErr); err != nil {
		t.Fatal(err)
	}
	// Of a listening socket, the kernel reports the backlog in this field, as ss(8) shows it in Send-Q.
	if info.Sacked != backlog {
		t.Errorf("got a backlog of %d, want %d", info.Sacked, backlog)
	}
}
