package testenv_test

import (
	"errors"
	"fmt"
	"net"
	"os"
	"syscall"
	"testing"

	"ironroot/internal/test/testenv"
	"ironroot/internal/test/testenv/nettest"
)

// Nobody gets a reserved port from the kernel, which here has two. A server can listen on it again and again, at one
// address and at all.
func TestPort(t *testing.T) {
	if !nettest.Namespace(t) {
		return
	}
	nettest.Configure(t, "lo")
	if err := os.WriteFile("/proc/sys/net/ipv4/ip_local_port_range", []byte("40000 40001"), 0); err != nil {
		t.Fatal(err)
	}
	port := testenv.Port(t)
	refused := func() {
		t.Helper()
		if _, err := net.Dial("tcp", fmt.Sprintf("127.0.0.1:%d", port)); !errors.Is(err, syscall.ECONNREFUSED) {
			t.Errorf("port %d: got %v, want %v", port, err, syscall.ECONNREFUSED)
		}
	}
	refused()
	for _, host := range []string{"127.0.0.1", "", "::1"} {
		l, err := net.Listen("tcp", net.JoinHostPort(host, fmt.Sprint(port)))
		if err != nil {
			t.Fatalf("address %q: %v", host, err)
		}
		conn, err := net.Dial("tcp", l.Addr().String()) // has the other port
		if err != nil {
			t.Fatal(err)
		}
		if got := conn.LocalAddr().(*net.TCPAddr).Port; got != 80_001-port {
			t.Errorf("connection: got port %d, want %d", got, 80_001-port)
		}
		_ = errors.Join(conn.Close(), l.Close())
		refused()
	}
	for _, host := range []string{"127.0.0.1", "", "::1"} {
		l, err := net.Listen("tcp", net.JoinHostPort(host, "0"))
		if err != nil {
			continue // a closed connection has the other port
		}
		if got := l.Addr().(*net.TCPAddr).Port; got == port {
			t.Errorf("address %q: another server got the port", host)
		}
		_ = l.Close()
	}
}
