package api

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"golang.org/x/sys/unix"

	"ironroot/agent/command"
	"ironroot/agent/journal"
	"ironroot/agent/token"
)

// flooded serves an API on the loopback interface and returns its log.
func flooded(t *testing.T) (address string, lines *journal.Journal) {
	t.Helper()
	l, err := Listen(t.Context(), "127.0.0.1", 0)
	if err != nil {
		t.Fatal(err)
	}
	lines = journal.New(io.Discard, nil, 1<<20)
	known := &token.Token{}
	known.Set(secret)
	registry := command.NewRegistry(nil, command.Options{})
	t.Cleanup(registry.Close)
	s := Serve(l, New(Options{Commands: registry, Token: known, Log: lines.Logger()}), nil)
	t.Cleanup(func() { shutdown(s) })
	return l.Addr().String(), lines
}

// list requests the commands from an address of the loopback network.
func list(t *testing.T, address, from string) (int, error) {
	t.Helper()
	d := &net.Dialer{LocalAddr: &net.TCPAddr{IP: net.ParseIP(from)}}
	client := &http.Client{
		Timeout: time.Minute, Transport: &http.Transport{DialContext: d.DialContext, DisableKeepAlives: true},
	}
	answer, err := client.Get("http://" + address + "/v1/commands/?agent_token=" + secret)
	if err != nil {
		return 0, err
	}
	return answer.StatusCode, answer.Body.Close()
}

// Untrusted peers with unfinished headers do not block a conductor, whether it is new or has presented the token.
func TestUnfinishedHeaders(t *testing.T) {
	address, _ := flooded(t)
	if code, err := list(t, address, "127.0.0.9"); err != nil || code != http.StatusOK {
		t.Fatalf("before the flood: got %d, %v", code, err)
	}
	d := net.Dialer{LocalAddr: &net.TCPAddr{IP: net.ParseIP("127.0.0.9")}}
	trusted, err := d.DialContext(t.Context(), "tcp4", address)
	if err != nil {
		t.Fatal(err)
	}
	defer trusted.Close() //nolint:errcheck // only asked
	answers := bufio.NewReader(trusted)
	ask := func() (int, error) {
		_, err := io.WriteString(trusted, "GET /v1/commands/?agent_token="+secret+" HTTP/1.1\r\nHost: agent\r\n\r\n")
		if err != nil {
			return 0, err
		}
		answer, err := http.ReadResponse(answers, nil)
		if err != nil {
			return 0, err
		}
		_, err = io.Copy(io.Discard, answer.Body)
		return answer.StatusCode, errors.Join(err, answer.Body.Close())
	}
	if code, err := ask(); err != nil || code != http.StatusOK {
		t.Fatalf("on a connection that stays open, before the flood: got %d, %v", code, err)
	}
	var flood []net.Conn
	for i := range 900 {
		d := net.Dialer{LocalAddr: &net.TCPAddr{IP: net.IPv4(127, 0, 1, byte(1+i%100))}}
		c, err := d.DialContext(t.Context(), "tcp4", address)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = c.Close() })
		_, _ = io.WriteString(c, "GET / HTTP/1.1\r\nX-Filling: "+strings.Repeat("x", 8<<10)) // it may be closed already
		flood = append(flood, c)
	}
	for _, from := range []string{"127.0.0.9", "127.0.0.10"} {
		if code, err := list(t, address, from); err != nil || code != http.StatusOK {
			t.Errorf("request from %s during the flood: got %d, %v, want 200", from, code, err)
		}
	}
	if code, err := ask(); err != nil || code != http.StatusOK {
		t.Errorf("on the connection that stayed open: got %d, %v, want 200", code, err)
	}
	limit := connectionLimits()
	kept := 0
	for _, c := range flood {
		if isOpen(t, c) {
			kept++
		}
	}
	if kept > limit.Untrusted {
		t.Errorf("connections that are kept: got %d, want at most %d", kept, limit.Untrusted)
	}
}

// isOpen reports whether the peer has neither sent anything nor closed the connection. It does not wait.
func isOpen(t *testing.T, c net.Conn) bool {
	t.Helper()
	raw, err := c.(*net.TCPConn).SyscallConn()
	if err != nil {
		t.Fatal(err)
	}
	var received error
	if err := raw.Control(func(fd uintptr) {
		_, _, received = unix.Recvfrom(int(fd), make([]byte, 1), unix.MSG_PEEK|unix.MSG_DONTWAIT)
	}); err != nil {
		t.Fatal(err)
	}
	return errors.Is(received, unix.EAGAIN)
}

func TestHeaderLimit(t *testing.T) {
	address, _ := flooded(t)
	for size, want := range map[int]int{
		8 << 10: http.StatusOK, maxHeaderBytes + 8<<10: http.StatusRequestHeaderFieldsTooLarge,
	} {
		c, err := (&net.Dialer{}).DialContext(t.Context(), "tcp4", address)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := fmt.Fprintf(c, "GET / HTTP/1.1\r\nHost: agent\r\nX-Filling: %s\r\n\r\n",
			strings.Repeat("x", size)); err != nil {
			t.Fatal(err)
		}
		answer, err := http.ReadResponse(bufio.NewReader(c), nil)
		if err != nil {
			t.Fatal(err)
		}
		if answer.StatusCode != want {
			t.Errorf("header of %d bytes: got %d, want %d", size, answer.StatusCode, want)
		}
		_ = answer.Body.Close()
		_ = c.Close()
	}
}

// Requests without the token cause a limited number of short log lines, and one line with the number of further ones.
// Requests with the token are always logged.
func TestRefusedRequestsDoNotDisplaceTheLog(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		lines := journal.New(io.Discard, nil, 64<<10)
		known := &token.Token{}
		known.Set(secret)
		registry := command.NewRegistry(nil, command.Options{})
		defer registry.Close()
		l := pipes{make(chan net.Conn), make(chan struct{})}
		server := Serve(l, New(Options{Commands: registry, Token: known, Log: lines.Logger()}), nil)
		client, conn := net.Pipe()
		l.conns <- conn
		answers := bufio.NewReader(client)
		get := func(path string) {
			if _, err := fmt.Fprintf(client, "GET %s HTTP/1.1\r\nHost: agent\r\n\r\n", path); err != nil {
				t.Fatal(err)
			}
			answer, err := http.ReadResponse(answers, nil)
			if err != nil {
				t.Fatal(err)
			}
			_, _ = io.Copy(io.Discard, answer.Body)
			_ = answer.Body.Close()
		}
		lines.Logger().Info("deployment began")
		const refused = 2000
		for i := range refused {
			get(fmt.Sprintf("/%s/%d", strings.Repeat("x", 8<<10), i))
			if i%maxUndelayed == 0 {
				time.Sleep(time.Second) // in the bubble's time
			}
		}
		get("/v1/commands/?agent_token=" + secret)
		time.Sleep(quotaWindow) // in the bubble's time
		log := string(lines.Bytes())
		for _, want := range []string{
			"deployment began", "path=/v1/commands/?agent_token=*** status=200",
			"requests without a valid token not logged",
		} {
			if !strings.Contains(log, want) {
				t.Errorf("the log lacks %q", want)
			}
		}
		if len(log) > 16<<10 {
			t.Errorf("log of %d refused requests: got %d bytes, want at most 16 KiB:\n%.4000s", refused, len(log), log)
		}
		_ = client.Close()
		ctx, cancel := context.WithCancel(context.Background())
		cancel()
		server.Shutdown(ctx)
	})
}

// A flood of requests without the token is delayed, independent of the peer.
func TestThrottleDelay(t *testing.T) {
	var p throttle
	now := time.Now()
	for i := range 2 * maxUndelayed {
		got := p.delay(now.Add(time.Duration(i) * time.Millisecond))
		if want := i >= maxUndelayed; got > 0 != want {
			t.Errorf("request %d of a second: got delay %v, want one: %v", i+1, got, want)
		}
	}
	if got := p.delay(now.Add(time.Second)); got != 0 {
		t.Errorf("first request of the next second: got delay %v, want none", got)
	}
}

func TestQuotaCountsPeers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var log strings.Builder
		q := quota{log: slog.New(slog.NewTextHandler(&log, nil)), lines: 1, summary: "not logged"}
		for i := range 7 {
			if got, want := q.take(fmt.Sprint(i%3)), i == 0; got != want {
				t.Errorf("take %d: got %v, want %v", i+1, got, want)
			}
		}
		time.Sleep(quotaWindow) // in the bubble's time
		synctest.Wait()
		if !strings.Contains(log.String(), "count=6 peers=3") {
			t.Errorf("got %q, want 6 of 3 peers", log.String())
		}
		if !q.take("") {
			t.Error("the next window allows no line")
		}
	})
}
