package syslog

import (
	"bufio"
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"ironroot/agent/journal"
	"ironroot/internal/goroutine"
	"ironroot/lab/selfsigned"
)

// follower is a journal whose lines are sent.
type follower struct {
	*journal.Journal

	log     *slog.Logger
	options Options
}

// named implements [Machine].
type named func() string

func (n named) Hostname() string { return n() }

// dialing implements [Dialer].
type dialing func(ctx context.Context, network, address string) (net.Conn, error)

func (d dialing) DialContext(ctx context.Context, network, address string) (net.Conn, error) {
	return d(ctx, network, address)
}

func newFollower() *follower {
	j := journal.New(io.Discard, nil, 1<<20)
	f := &follower{Journal: j, log: j.Logger()}
	f.log.Info("before", "key", "value")
	f.options = Options{
		Dialer: new(net.Dialer), Machine: named(func() string { return "node-17" }), Lines: j.Follow(Pending),
		Log: f.log,
	}
	return f
}

// run sends lines until the test ends.
func (f *follower) run(t *testing.T, transport, address string) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan struct{})
	f.options.Transport, f.options.Address = transport, address
	goroutine.Go(func() error {
		defer close(done)
		Run(ctx, f.options)
		return nil
	}, nil)
	t.Cleanup(func() {
		cancel()
		<-done
	})
}

// expect checks the next message: its beginning, and its end after the timestamp.
func expect(t *testing.T, next func() string, priority, end string) {
	t.Helper()
	got := next()
	if !strings.HasPrefix(got, "<"+priority+">1 ") || !strings.HasSuffix(got, end) {
		t.Errorf("got message %q, want priority %s and %q", got, priority, end)
	}
}

func TestUDP(t *testing.T) {
	conn, err := net.ListenUDP("udp", &net.UDPAddr{IP: net.IPv4(127, 0, 0, 1)})
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close() //nolint:errcheck // only read
	next := func() string {
		buffer := make([]byte, 1<<16)
		n, err := conn.Read(buffer)
		if err != nil {
			t.Fatal(err)
		}
		return string(buffer[:n])
	}
	f := newFollower()
	f.run(t, "udp", conn.LocalAddr().String())
	if got := next(); !strings.HasPrefix(got, "<30>1 - node-17 ironroot - - - ") || // logged before: without a time
		!strings.HasSuffix(got, " INFO  before key=value") {
		t.Errorf("got message %q, want the line that was logged before", got)
	}
	f.log.Warn("a warning")
	got := next()
	fields := strings.SplitN(got, " ", 8)
	if stamp, err := time.Parse(time.RFC3339Nano, fields[1]); err != nil || time.Since(stamp).Abs() > time.Hour ||
		fields[2] != "node-17" || fields[3] != "ironroot" || !strings.HasSuffix(got, " WARN  a warning") {
		t.Errorf("got %q (%v), want a message of RFC 5424 with the time", got, err)
	}
	f.log.Error("x", "long", strings.Repeat("é", 4096))
	if got := next(); len(got) > 2048 || len(got) < 2046 || !strings.HasSuffix(got, "é") {
		t.Errorf("got %d bytes that end with %q, want at most 2048 and whole characters", len(got), got[len(got)-4:])
	}
}

// A host without a server rejects datagrams. That neither ends nor delays the sender, and logs nothing, because each
// line about it would be rejected, too.
func TestUDPWithoutServer(t *testing.T) {
	conn, err := net.ListenUDP("udp", &net.UDPAddr{IP: net.IPv4(127, 0, 0, 1)})
	if err != nil {
		t.Fatal(err)
	}
	address := conn.LocalAddr().String()
	if err := conn.Close(); err != nil { // the kernel rejects what is sent to the port
		t.Fatal(err)
	}
	f := newFollower()
	dials := 0
	f.options.Dialer = dialing(func(ctx context.Context, network, address string) (net.Conn, error) {
		dials++
		return new(net.Dialer).DialContext(ctx, network, address)
	})
	const lines = 100
	for i := range lines - 1 { // one more was logged before
		f.log.Info("line", "number", i)
	}
	sent, messages := make(chan struct{}), 0
	f.options.Machine = named(func() string { // is called for each message
		if messages++; messages == lines {
			close(sent)
		}
		return "node-17"
	})
	f.run(t, "udp", address)
	<-sent
	if text := string(f.Bytes()); strings.Contains(text, "syslog") || dials != 1 {
		t.Errorf("got %d connections, want 1, and log\n%s", dials, text)
	}
}

// frames returns the messages of a stream with octet counting.
func frames(t *testing.T, r io.Reader) func() string {
	t.Helper()
	stream := bufio.NewReader(r)
	return func() string {
		var size int
		if _, err := fmt.Fscanf(stream, "%d ", &size); err != nil {
			t.Fatal(err)
		}
		message := make([]byte, size)
		if _, err := io.ReadFull(stream, message); err != nil {
			t.Fatal(err)
		}
		return string(message)
	}
}

// A server that is not there when the machine starts gets all lines when it is, in their order, and lines of several
// lines as several messages.
func TestTCP(t *testing.T) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer listener.Close() //nolint:errcheck // the test ends
	f := newFollower()
	refused := 2
	f.options.Dialer = dialing(func(ctx context.Context, network, address string) (net.Conn, error) {
		if refused--; refused >= 0 {
			return nil, errors.New("no route")
		}
		return new(net.Dialer).DialContext(ctx, network, address)
	})
	f.log.Debug("not logged")
	f.log.Error("failed", "err", "first\nsecond")
	f.run(t, "tcp", listener.Addr().String())
	conn, err := listener.Accept()
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close() //nolint:errcheck // only read
	next := frames(t, conn)
	expect(t, next, "30", "INFO  before key=value")
	expect(t, next, "27", "ERROR failed")
	expect(t, next, "27", "err:")
	expect(t, next, "27", "first")
	expect(t, next, "27", "second")
	expect(t, next, "28", "err=\"no route\"")
	expect(t, next, "30", "syslog server reached server="+listener.Addr().String())
	f.Redact("s3cret-word")
	f.log.Info("a s3cret-word")
	expect(t, next, "30", "INFO  a ***")
}

// Over TLS, the certificate of the server is verified.
func TestTLS(t *testing.T) {
	trusted, authority, err := selfsigned.Issue("127.0.0.1")
	if err != nil {
		t.Fatal(err)
	}
	foreign, _, err := selfsigned.Issue("127.0.0.1")
	if err != nil {
		t.Fatal(err)
	}
	listen := func(pair tls.Certificate) net.Listener {
		listener, err := tls.Listen("tcp", "127.0.0.1:0", &tls.Config{Certificates: []tls.Certificate{pair}})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = listener.Close() })
		return listener
	}
	right, wrong := listen(trusted), listen(foreign)
	f := newFollower()
	pool := x509.NewCertPool()
	if !pool.AppendCertsFromPEM(authority) {
		t.Fatal("no certificate of an authority")
	}
	f.options.TLS = &tls.Config{RootCAs: pool}
	tried := false
	f.options.Dialer = dialing(func(ctx context.Context, network, address string) (net.Conn, error) {
		if !tried {
			tried, address = true, wrong.Addr().String()
			goroutine.Go(func() error {
				conn, err := wrong.Accept()
				if err == nil {
					err = conn.(*tls.Conn).HandshakeContext(ctx)
				}
				if err == nil {
					t.Error("a foreign certificate was accepted")
				}
				return nil
			}, nil)
		}
		return new(net.Dialer).DialContext(ctx, network, address)
	})
	f.run(t, "tls", right.Addr().String())
	conn, err := right.Accept()
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close() //nolint:errcheck // only read
	next := frames(t, conn)
	expect(t, next, "30", "INFO  before key=value")
	if got := next(); !strings.Contains(got, "certificate") {
		t.Errorf("got message %q, want one about the certificate", got)
	}
}

// After a broken connection, the server gets the lines that were not sent.
func TestReconnect(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFollower()
		servers := make(chan net.Conn)
		f.options.Dialer = dialing(func(ctx context.Context, _, _ string) (net.Conn, error) {
			client, server := net.Pipe()
			select {
			case servers <- server:
				return client, nil
			case <-ctx.Done():
				return nil, ctx.Err()
			}
		})
		f.run(t, "tcp", "server:601")
		first := <-servers
		expect(t, frames(t, first), "30", "before key=value")
		if err := first.Close(); err != nil {
			t.Fatal(err)
		}
		f.log.Info("after")
		second := <-servers
		next := frames(t, second)
		expect(t, next, "30", "INFO  after")
		if err := second.Close(); err != nil {
			t.Fatal(err)
		}
	})
}

// Lines that do not fit while the server is away are dropped, the oldest ones first, and the server is told.
func TestDropped(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFollower()
		f.options.Lines = f.Follow(200)
		for i := range 20 {
			f.log.Info("line", "number", i)
		}
		client, server := net.Pipe()
		f.options.Dialer = dialing(func(context.Context, string, string) (net.Conn, error) { return client, nil })
		f.run(t, "tcp", "server:601")
		next := frames(t, server)
		var dropped int
		first := next()
		_, text, _ := strings.Cut(first, "ironroot - - - ")
		if _, err := fmt.Sscanf(text, "%d lines dropped", &dropped); err != nil || dropped < 10 {
			t.Fatalf("got message %q, want the number of lines dropped", first)
		}
		for i := dropped - 1; i < 20; i++ { // the line before the 20 was dropped, too
			expect(t, next, "30", fmt.Sprintf("INFO  line number=%d", i))
		}
	})
}
