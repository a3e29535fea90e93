package api

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"ironroot/agent/command"
	"ironroot/agent/token"
)

// pipes is a listener of in-memory connections within a bubble of synctest.
type pipes struct {
	conns  chan net.Conn
	closed chan struct{}
}

func (p pipes) Accept() (net.Conn, error) {
	select {
	case conn := <-p.conns:
		return conn, nil
	case <-p.closed:
		return nil, net.ErrClosed
	}
}

func (p pipes) Close() error {
	close(p.closed)
	return nil
}

func (p pipes) Addr() net.Addr { return &net.TCPAddr{} }

// slowAPI serves an API with the command test.long, which runs for an hour.
func slowAPI(t *testing.T) (dial func() net.Conn, stop func()) {
	t.Helper()
	registry := command.NewRegistry([]command.Extension{{Name: "test", Commands: []command.Command{
		{Name: "long", Run: func(ctx context.Context, _ command.Params) (any, error) {
			select {
			case <-time.After(time.Hour):
				return "done", nil
			case <-ctx.Done():
				return nil, errors.New("interrupted")
			}
		}},
	}}}, command.Options{})
	known := &token.Token{}
	known.Set(secret)
	l := pipes{make(chan net.Conn), make(chan struct{})}
	server := Serve(l, New(Options{Commands: registry, Token: known}), nil)
	dial = func() net.Conn {
		client, conn := net.Pipe()
		l.conns <- conn
		return client
	}
	return dial, func() {
		ctx, cancel := context.WithCancel(context.Background())
		cancel()
		server.Shutdown(ctx)
		registry.Close()
	}
}

// exchange sends the parts of a request with a pause between them, and returns the response and its time.
func exchange(
	t *testing.T, conn net.Conn, pause time.Duration, parts ...string,
) (status int, body string, took time.Duration) {
	t.Helper()
	started := time.Now()
	sent := make(chan struct{})
	go func() {
		defer close(sent)
		for i, part := range parts {
			if i > 0 {
				time.Sleep(pause) // in the bubble's time
			}
			if _, err := io.WriteString(conn, part); err != nil {
				return // the server has closed the connection
			}
		}
	}()
	answer, err := http.ReadResponse(bufio.NewReader(conn), nil) //nolint:bodyclose // it is, below
	if err != nil {
		status, body = 0, err.Error() // closed without a response
	} else {
		data, err := io.ReadAll(answer.Body)
		if err := errors.Join(err, answer.Body.Close()); err != nil {
			t.Error(err)
		}
		status, body = answer.StatusCode, string(data)
	}
	took = time.Since(started)
	if err := conn.Close(); err != nil {
		t.Error(err)
	}
	<-sent
	return status, body, took
}

func TestSlowClients(t *testing.T) {
	head := func(method, path, token string, length int) string {
		return fmt.Sprintf("%s %s?agent_token=%s&wait=true HTTP/1.1\r\nHost: agent\r\nContent-Length: %d\r\n\r\n",
			method, path, token, length)
	}
	run := `{"name": "test.long", "params": {}}`
	letters := strings.Split(run, "")
	for _, tt := range []struct {
		name   string
		pause  time.Duration
		parts  []string
		status int
		text   string
		within time.Duration // of the answer
	}{
		{"header never ends", time.Hour, []string{"POST / HTTP/1.1\r\nHost: a", ""}, 0, "EOF", headerTimeout},
		{
			"wrong token, body never comes", time.Hour,
			[]string{head("POST", "/v1/commands/", "wrong", 99), "x"},
			401, "Token invalid", stallTimeout,
		},
		{
			"no such route, body never comes", time.Hour,
			[]string{head("PUT", "/nowhere", "", 99), "x"},
			404, "not found", stallTimeout,
		},
		{
			"status with a body that never comes", time.Hour,
			[]string{head("GET", "/v1/status", "", 99), "x"},
			200, "started_at", stallTimeout,
		},
		{
			"body never ends", time.Hour,
			[]string{head("POST", "/v1/commands/", secret, len(run)), run[:5], "x"},
			408, "Timed out while reading", stallTimeout,
		},
		{
			"body drips for too long", stallTimeout / 2, append([]string{head("POST", "/v1/commands/", secret, 1000)},
				strings.Split(strings.Repeat(" ", 1000), "")...),
			408, "Timed out while reading", bodyTimeout,
		},
		{
			"slow body and slow command", 10 * time.Second,
			append([]string{head("POST", "/v1/commands/", secret, len(run))}, letters...), 200, `"result":"done"`,
			time.Hour + time.Duration(len(letters))*10*time.Second,
		},
		{
			"slow command", 0,
			[]string{head("POST", "/v1/commands/", secret, len(run)) + run},
			200, `"result":"done"`, time.Hour,
		},
	} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				dial, stop := slowAPI(t)
				defer stop()
				status, body, took := exchange(t, dial(), tt.pause, tt.parts...)
				if status != tt.status || !strings.Contains(body, tt.text) {
					t.Errorf("got %d %s, want %d and %q", status, body, tt.status, tt.text)
				}
				if took > tt.within {
					t.Errorf("answered after %v, want %v at most", took, tt.within)
				}
			})
		})
	}
}

// A request whose token is replaced while its body is read runs no command: it belongs to a former session of Ironic.
func TestTokenReplacedDuringBody(t *testing.T) {
	f := start(t)
	f.token.Set(secret)
	conn, err := net.Dial("tcp", f.Listener.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	const body = `{"name":"test.nothing","params":{}}`
	// The server asks for the body when it reads it, which is after its first check of the token.
	if _, err := fmt.Fprintf(conn, "POST /v1/commands/?agent_token=%s HTTP/1.1\r\nHost: agent\r\n"+
		"Expect: 100-continue\r\nContent-Length: %d\r\n\r\n", secret, len(body)); err != nil {
		t.Fatal(err)
	}
	answers := bufio.NewReader(conn)
	want := func(status int) {
		t.Helper()
		answer, err := http.ReadResponse(answers, nil) //nolint:bodyclose // the connection is closed
		if err != nil || answer.StatusCode != status {
			t.Fatalf("got %+v and %v, want status %d", answer, err, status)
		}
	}
	want(http.StatusContinue)
	f.token.Set(strings.ToUpper(secret))
	if _, err := io.WriteString(conn, body); err != nil {
		t.Fatal(err)
	}
	want(http.StatusUnauthorized)
}

// A client that does not read the response does not block the server's goroutine forever.
func TestAnswerNotTaken(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		dial, stop := slowAPI(t)
		defer stop()
		conn := dial()
		if _, err := io.WriteString(conn, "GET /v1/status HTTP/1.1\r\nHost: agent\r\n\r\n"); err != nil {
			t.Fatal(err)
		}
		time.Sleep(responseTimeout + time.Second) // in the bubble's time
		if _, err := conn.Read(make([]byte, 1)); !errors.Is(err, io.EOF) {
			t.Errorf("got %v, want a closed connection", err)
		}
		if err := conn.Close(); err != nil {
			t.Error(err)
		}
	})
}
