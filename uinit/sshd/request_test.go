//go:build linux

package sshd

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"golang.org/x/crypto/ssh"

	"ironroot/internal/password"
	"ironroot/uinit/account"
)

// newTestServer returns a server without a listener, and a function that makes connections to it. The other end of a
// connection is returned, too.
func newTestServer(
	t *testing.T, h password.Hash, l limits,
) (s *server, connect func() (*connection, net.Conn)) {
	t.Helper()
	list := account.List{account.Rescue(h, "/bin/sh", "")}
	s = &server{
		config: &config{Accounts: list, Limits: l}, log: slog.New(slog.DiscardHandler), limiter: newLimiter(l),
		turn: make(chan struct{}, 1),
	}
	return s, func() (*connection, net.Conn) {
		t.Helper()
		ours, theirs := net.Pipe()
		c, err := newConnection(ours, l)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(c.end)
		return c, theirs
	}
}

// Only attempts with a wrong password count. The connection of one that would have to wait too long is closed.
func TestAttemptsThatCount(t *testing.T) {
	s, connect := newTestServer(t, hash(t, secret), limits{
		Login: time.Hour, Attempt: rate{time.Hour, 2}, AllAttempts: rate{time.Nanosecond, 100}, MaxWait: time.Minute,
	})
	c, peer := connect()
	for range 5 {
		if err := s.checkPassword(c, "rescue", []byte(secret)); err != nil {
			t.Fatalf("right password: got %v", err)
		}
	}
	for range 2 {
		if err := s.checkPassword(c, "rescue", []byte("wrong")); !errors.Is(err, errDenied) {
			t.Fatalf("wrong password: got %v, want %v", err, errDenied)
		}
	}
	if err := s.checkPassword(c, "rescue", []byte(secret)); !errors.Is(err, errDenied) {
		t.Errorf("too many attempts: got %v, want %v", err, errDenied)
	}
	if _, err := peer.Read(make([]byte, 1)); !errors.Is(err, io.EOF) {
		t.Errorf("too many attempts: got %v from the connection, want it closed", err)
	}
}

// Attempts of clients that leave, while they wait for their time or for their turn, do not count.
func TestAbandonedAttempts(t *testing.T) {
	h := hash(t, secret)
	synctest.Test(t, func(t *testing.T) {
		s, connect := newTestServer(t, h, limits{
			Login: time.Hour, Attempt: rate{time.Minute, 2}, AllAttempts: rate{time.Nanosecond, 100},
			MaxWait: 10 * time.Minute,
		})
		leave := func() {
			t.Helper()
			c, peer := connect()
			checked := make(chan error, 1)
			go func() { checked <- s.checkPassword(c, "rescue", []byte(secret)) }()
			synctest.Wait()
			if len(checked) > 0 {
				t.Fatalf("got %v, want an attempt that waits", <-checked)
			}
			if err := peer.Close(); err != nil {
				t.Fatal(err)
			}
			if _, err := c.Read(make([]byte, 1)); !errors.Is(err, io.EOF) {
				t.Fatalf("got %v, want the end of the connection", err)
			}
			if err := <-checked; !errors.Is(err, context.Canceled) {
				t.Fatalf("got %v, want %v", err, context.Canceled)
			}
		}
		s.turn <- struct{}{} // of another client
		for range 5 {
			leave()
		}
		<-s.turn
		start := time.Now()
		c, _ := connect()
		for range 2 {
			if err := s.checkPassword(c, "rescue", []byte("wrong")); !errors.Is(err, errDenied) {
				t.Fatalf("wrong password: got %v, want %v", err, errDenied)
			}
		}
		for range 20 {
			leave() // its time is in a minute
		}
		if took := time.Since(start); took > 0 {
			t.Errorf("attempts took %v, want no wait", took)
		}
		if err := s.checkPassword(c, "rescue", []byte(secret)); err != nil || time.Since(start) != time.Minute {
			t.Errorf("got %v after %v, want a login after a minute", err, time.Since(start))
		}
	})
}

// Failed logins are logged while they are few, and then every ten seconds.
func TestFailuresShown(t *testing.T) {
	var f failures
	now := time.Now()
	for i := 1; i <= 12; i++ {
		if count, show := f.add(now); count != i || show != (i <= 10) {
			t.Errorf("failure %d: got %d, %v", i, count, show)
		}
	}
	for _, show := range []bool{true, false} {
		if _, got := f.add(now.Add(10 * time.Second)); got != show {
			t.Errorf("after ten seconds: got %v, want %v", got, show)
		}
	}
}

// Requests that make no sense at their time, or are malformed, are refused, and change nothing.
func TestRequestOrder(t *testing.T) {
	r := newRig(t, nil)
	client := r.dial(t, "rescue", secret)
	defer client.Close()
	session, err := client.NewSession()
	if err != nil {
		t.Fatal(err)
	}
	out, err := session.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	request := func(kind string, payload any, want bool) {
		t.Helper()
		data, isText := payload.(string)
		if !isText {
			data = string(ssh.Marshal(payload))
		}
		if ok, err := session.SendRequest(kind, true, []byte(data)); ok != want || err != nil {
			t.Errorf("%s %q: got %v, %v, want %v", kind, data, ok, err, want)
		}
	}
	type text struct{ Text string }
	type variable struct{ Name, Value string }
	type pty struct {
		Kind                         string
		Columns, Rows, Width, Height uint32
		Modes                        string
	}
	size := windowSize{80, 24, 0, 0}
	terminal := pty{"bad kind", 70000, 24, 0, 0, ""}
	request("window-change", size, false)
	request("signal", text{"TERM"}, false)
	request("exec", "x", false)
	request("subsystem", text{"other"}, false)
	request("subsystem", "x", false)
	request("env", "x", false)
	request("env", variable{"LANG", strings.Repeat("x", 1025)}, false)
	request("env", variable{"LANG", strings.Repeat("x", 1024)}, true)
	for i := range 32 {
		request("env", variable{"LC_" + string(rune('A'+i%26)), fmt.Sprint(i)}, i < 31)
	}
	request("pty-req", "x", false)
	request("pty-req", terminal, true)
	request("pty-req", terminal, false)
	request("window-change", "x", false)
	request("exec", text{`stty size; echo $TERM ${#LANG}; read x`}, true)
	lines := bufio.NewReader(out)
	await := func(want string) {
		t.Helper()
		for {
			line, err := lines.ReadString('\n')
			if err != nil {
				t.Fatalf("%q does not appear: %v", want, err)
			}
			if strings.TrimSpace(line) == want {
				return
			}
		}
	}
	await("24 65535")
	await("dumb 1024")
	request("exec", text{"true"}, false)
	request("shell", "", false)
	request("subsystem", text{"sftp"}, false)
	request("env", variable{"LANG", "C"}, false)
	request("pty-req", terminal, false)
	request("signal", "x", false)
	request("signal", text{"NONSENSE"}, false)
	request("window-change", size, true)
	request("signal", text{"USR1"}, true) // ends the process
	if _, err := io.Copy(io.Discard, lines); err != nil {
		t.Error(err)
	}
}
