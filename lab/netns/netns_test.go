//go:build linux

package netns

import (
	"io"
	"net"
	"os/exec"
	"strings"
	"syscall"
	"testing"

	"ironroot/internal/test/testenv"
)

// A namespace has its own interfaces and ports, for this process and for programs.
func TestNamespace(t *testing.T) {
	testenv.Root(t)
	testenv.Programs(t, "ip")
	n, err := New()
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = n.Close() }()
	if err := n.Bridge("br0", "192.0.2.1/24", "2001:db8::1/64"); err != nil {
		t.Fatal(err)
	}
	if err := n.TapOn("br0", "tap0"); err != nil {
		t.Fatal(err)
	}
	if err := n.Tap("tap1", "198.51.100.1/24"); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"br0", "tap0", "tap1"} {
		if _, err := net.InterfaceByName(name); err == nil {
			t.Errorf("interface %s is in the test's own namespace", name)
		}
	}
	if err := n.Tap("tap2", "nonsense"); err == nil || !strings.Contains(err.Error(), "tap2") {
		t.Errorf("got %v, want an error that names the interface", err)
	}
	out := run(t, n, exec.CommandContext(t.Context(), "ip", "-o", "link"))
	for _, want := range []string{"lo: <LOOPBACK,UP", "br0: <", "tap0: <", "master br0", "tap1: <"} {
		if !strings.Contains(out, want) {
			t.Errorf("got links\n%s, want %q among them", out, want)
		}
	}
	// The address comes from no router advertisement, because servers send these themselves.
	accept := run(t, n, exec.CommandContext(t.Context(), "cat", "/proc/sys/net/ipv6/conf/br0/accept_ra"))
	if accept != "0\n" {
		t.Errorf("got accept_ra %q, want 0", accept)
	}
	for _, address := range []string{"192.0.2.1:4711", "[2001:db8::1]:4711"} {
		talk(t, n, address)
	}
}

// talk sends a word over a connection within the namespace and checks what arrives.
func talk(t *testing.T, n *Namespace, address string) {
	t.Helper()
	l, err := n.Listen(t.Context(), "tcp", address)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = l.Close() }()
	client, err := n.DialContext(t.Context(), "tcp", address)
	if err != nil {
		t.Fatal(err)
	}
	server, err := l.Accept()
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = server.Close() }()
	if _, err := client.Write([]byte("word")); err != nil {
		t.Fatal(err)
	}
	_ = client.Close() // ends the stream
	if got, err := io.ReadAll(server); err != nil || string(got) != "word" {
		t.Errorf("%s: got %q and %v, want %q", address, got, err, "word")
	}
}

func run(t *testing.T, n *Namespace, cmd *exec.Cmd) string {
	t.Helper()
	var out strings.Builder
	cmd.Stdout, cmd.Stderr = &out, &out
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	wait, err := n.Start(cmd)
	if err == nil {
		err = wait()
	}
	if err != nil {
		t.Fatalf("%v: %v\n%s", cmd.Args, err, out.String())
	}
	return out.String()
}
