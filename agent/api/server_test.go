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
	"net/http/httptest"
	"net/netip"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"ironroot/agent/command"
	"ironroot/agent/token"
	"ironroot/internal/test/testenv"
)

// Listen fails if the port is in use. Err returns the cause of a server's failure, and nil after Shutdown.
func TestServerEnds(t *testing.T) {
	l, err := Listen(t.Context(), "127.0.0.1", 0)
	if err != nil {
		t.Fatal(err)
	}
	if second, err := Listen(t.Context(), "127.0.0.1", l.Addr().(*net.TCPAddr).Port); err == nil {
		t.Errorf("port %v is open twice", second.Addr())
	}
	a := New(Options{Token: &token.Token{}})
	s := Serve(l, a, nil)
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	<-s.Done()
	if s.Err() == nil {
		t.Error("the listener was closed: got no error of the server")
	}
	s, _ = serve(t, "127.0.0.1", nil)
	shutdown(s)
	select {
	case <-s.Done():
	default:
		t.Error("Shutdown returned before the server ended")
	}
	if err := s.Err(); err != nil {
		t.Errorf("after Shutdown: got %v, want no error", err)
	}
}

// serving serves an API on connections within a bubble of synctest.
func serving(o Options) (s *Server, dial func() net.Conn) {
	o.Token = &token.Token{}
	o.Token.Set(secret)
	l := pipes{make(chan net.Conn), make(chan struct{})}
	return Serve(l, New(o), nil), func() net.Conn {
		client, conn := net.Pipe()
		l.conns <- conn
		return client
	}
}

// sleeping has the command test.sleep, which sleeps for its argument minutes and ignores its context.
func sleeping() *command.Registry {
	return command.NewRegistry([]command.Extension{{Name: "test", Commands: []command.Command{{
		Name: "sleep", Async: true, Params: []command.Param{{Name: "minutes"}},
		Run: func(_ context.Context, p command.Params) (any, error) {
			var minutes int
			err := p.Decode("minutes", &minutes)
			time.Sleep(time.Duration(minutes) * time.Minute)
			return nil, err
		},
	}}}}, command.Options{})
}

// reading is an API whose Ironic reads records without the token, and has sent it with a command. All of its
// connections have the same peer.
func reading(t *testing.T) (s *Server, dial func() net.Conn) {
	t.Helper()
	registry := command.NewRegistry((&fixture{}).extensions(), command.Options{})
	s, dial = serving(Options{Commands: registry, Ironic: alwaysOld{}})
	conn := dial()
	send(t, conn, "POST", "/v1/commands/?agent_token="+secret, `{"name":"test.nothing","params":{}}`)
	answer, err := http.ReadResponse(bufio.NewReader(conn), nil)
	if err != nil || answer.StatusCode != http.StatusOK {
		t.Fatalf("command: got %+v and %v, want status 200", answer, err)
	}
	_, err = io.Copy(io.Discard, answer.Body)
	if err = errors.Join(err, answer.Body.Close(), conn.Close()); err != nil {
		t.Fatal(err)
	}
	return s, dial
}

func send(t *testing.T, conn net.Conn, method, path, body string) {
	t.Helper()
	text := fmt.Sprintf("%s %s HTTP/1.1\r\nHost: agent\r\nContent-Length: %d\r\n\r\n%s", method, path, len(body), body)
	if _, err := io.WriteString(conn, text); err != nil {
		t.Fatal(err)
	}
}

// Idle returns when the last request is answered, or when its context ends.
func TestIdle(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		registry := sleeping()
		defer registry.Close()
		s, dial := serving(Options{Commands: registry})
		started := time.Now()
		idle := func(limit, want time.Duration) {
			t.Helper()
			ctx, cancel := context.WithTimeout(t.Context(), limit)
			defer cancel()
			if s.api.Idle(ctx); time.Since(started) != want {
				t.Errorf("got idle after %v, want %v", time.Since(started), want)
			}
		}
		idle(time.Hour, 0)
		path := "/v1/commands/?wait=true&agent_token=" + secret
		conns := []net.Conn{dial(), dial()}
		send(t, conns[0], "POST", path, `{"name":"test.sleep","params":{"minutes":10}}`)
		synctest.Wait()
		send(t, conns[1], "GET", "/v1/commands/"+registry.List()[0].ID+path[len("/v1/commands/"):], "")
		synctest.Wait()
		idle(time.Minute, time.Minute)
		go func() { // only the first response is read
			_, _ = io.Copy(io.Discard, conns[0])
		}()
		time.Sleep(9*time.Minute + time.Second)
		idle(time.Minute, 11*time.Minute+time.Second)
		go func() { _, _ = io.Copy(io.Discard, conns[1]) }()
		idle(time.Hour, 11*time.Minute+time.Second)
		for _, conn := range conns {
			_ = conn.Close()
		}
		shutdown(s)
	})
}

// Shutdown aborts requests that are still running when its context ends.
func TestShutdownAbortsRequests(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		registry := sleeping()
		defer registry.Close()
		s, dial := serving(Options{Commands: registry})
		conn := dial()
		send(t, conn, "POST", "/v1/commands/?wait=true&agent_token="+secret,
			`{"name":"test.sleep","params":{"minutes":10}}`)
		synctest.Wait()
		started := time.Now()
		shutdown(s)
		_, err := conn.Read(make([]byte, 1))
		if took := time.Since(started); !errors.Is(err, io.EOF) || took > time.Minute {
			t.Errorf("got %v after %v, want a closed connection within a minute", err, took)
		}
		_ = conn.Close()
		time.Sleep(time.Hour) // the command ends
	})
}

// A client with the token, or one that needs none, has more time to read the response.
func TestTimeToReadAnswer(t *testing.T) {
	for path, want := range map[string]error{
		"/v1/status": io.EOF, "/v1/status?agent_token=" + secret: nil, "/v1/commands/": nil,
		"/v1/commands/?agent_token=": io.EOF,
	} {
		synctest.Test(t, func(t *testing.T) {
			s, dial := reading(t)
			conn := dial()
			send(t, conn, "GET", path, "")
			time.Sleep(unauthorizedResponseTimeout + time.Second)
			if _, err := conn.Read(make([]byte, 1)); !errors.Is(err, want) {
				t.Errorf("%s: got %v, want %v", path, err, want)
			}
			_ = conn.Close()
			shutdown(s)
		})
	}
}

// Frequent requests without the token are delayed. Those with it are not, and neither are those that need none.
func TestThrottle(t *testing.T) {
	for request, want := range map[string]time.Duration{
		"GET /v1/status":                       throttleDelay,
		"GET /v1/status?agent_token=" + secret: 0,
		"GET /v1/commands/":                    0,
		"GET /v1/commands/x":                   0,
		"GET /v1/commands/?agent_token=":       throttleDelay,
		"POST /v1/commands/":                   throttleDelay,
	} {
		synctest.Test(t, func(t *testing.T) {
			s, dial := reading(t)
			time.Sleep(time.Second)
			conn := dial()
			answers := bufio.NewReader(conn)
			started := time.Now()
			method, path, _ := strings.Cut(request, " ")
			for range maxUndelayed + 1 {
				send(t, conn, method, path, "")
				answer, err := http.ReadResponse(answers, nil)
				if err != nil {
					t.Fatal(err)
				}
				_, err = io.Copy(io.Discard, answer.Body)
				if err = errors.Join(err, answer.Body.Close()); err != nil {
					t.Fatal(err)
				}
			}
			if took := time.Since(started); took != want {
				t.Errorf("%s: got %d answers in %v, want %v", request, maxUndelayed+1, took, want)
			}
			_ = conn.Close()
			shutdown(s)
		})
	}
}

// Log lines about broken and dropped connections are limited. Further ones are counted.
func TestConnectionLines(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		log := &testenv.Log{}
		all := &slog.HandlerOptions{Level: slog.LevelDebug}
		a := New(Options{Token: &token.Token{}, Log: slog.New(slog.NewTextHandler(log, all))})
		for i := range requestLines + 7 {
			if n, err := (errorLog{a}).Write([]byte("TLS handshake error\n")); n != 20 || err != nil {
				t.Errorf("got %d, %v, want all of the line taken", n, err)
			}
			a.ConnectionDropped(netip.AddrFrom4([4]byte{192, 0, 2, byte(i % 3)}))
		}
		if got := strings.Count(log.String(), "TLS handshake error"); got != requestLines {
			t.Errorf("got %d lines about broken connections, want %d", got, requestLines)
		}
		time.Sleep(quotaWindow)
		synctest.Wait()
		for _, want := range []string{"count=7 peers=0", "count=" + strconv.Itoa(requestLines+7) + " peers=3"} {
			if !strings.Contains(log.String(), want) {
				t.Errorf("the log lacks %q:\n%s", want, log)
			}
		}
	})
}

// The timer receives the name of each request at its start, and is stopped at its end, also if the request fails.
func TestTimer(t *testing.T) {
	var got []string
	registry := command.NewRegistry(nil, command.Options{})
	defer registry.Close()
	known := &token.Token{}
	known.Set(secret)
	a := New(Options{Commands: registry, Token: known, Timers: timers(func(name string) func() {
		got = append(got, name)
		return func() { got = append(got, "end") }
	})})
	for _, tt := range []struct {
		method, path, name string
		status             int
	}{
		{"GET", "/v1/status", "get_status", 200},
		{"GET", "/v1/commands/", "list_commands", 200},
		{"POST", "/v1/commands/", "run_command", 400},
		{"GET", "/v1/commands/x", "get_command", 404},
	} {
		got = nil
		w := httptest.NewRecorder()
		a.ServeHTTP(w, httptest.NewRequest(tt.method, tt.path+"?agent_token="+secret, http.NoBody))
		if diff := cmp.Diff([]string{tt.name, "end"}, got); diff != "" || w.Code != tt.status {
			t.Errorf("%s %s: got status %d, want %d; measured (-want +got):\n%s",
				tt.method, tt.path, w.Code, tt.status, diff)
		}
	}
}

// deadlines is a ResponseWriter without a connection. One call of SetReadDeadline fails.
type deadlines struct {
	*httptest.ResponseRecorder
	fails, calls int
}

func (d *deadlines) SetReadDeadline(time.Time) error {
	if d.calls++; d.calls == d.fails {
		return errors.New("use of closed network connection")
	}
	return nil
}

// A request fails if a deadline of its connection cannot be set: its body could take forever. A request without a
// connection needs none.
func TestDeadlinesThatFail(t *testing.T) {
	registry := command.NewRegistry([]command.Extension{{Name: "test", Commands: []command.Command{{
		Name: "text", Run: func(context.Context, command.Params) (any, error) { return "done", nil },
	}}}}, command.Options{})
	defer registry.Close()
	known := &token.Token{}
	known.Set(secret)
	a := New(Options{Commands: registry, Token: known})
	request := func() *http.Request {
		body := strings.NewReader(`{"name":"test.text","params":{}}`)
		return httptest.NewRequest(http.MethodPost, "/v1/commands/?agent_token="+secret, body)
	}
	healthy := &deadlines{ResponseRecorder: httptest.NewRecorder()}
	if a.ServeHTTP(healthy, request()); healthy.Code != http.StatusOK || healthy.calls < 3 {
		t.Fatalf("got %d after %d deadlines, want 200", healthy.Code, healthy.calls)
	}
	for n := range healthy.calls {
		w := &deadlines{ResponseRecorder: httptest.NewRecorder(), fails: n + 1}
		if a.ServeHTTP(w, request()); w.Code < 400 || !strings.Contains(w.Body.String(), "closed network connection") {
			t.Errorf("deadline %d of %d fails: got %d %s, want an error", n+1, healthy.calls, w.Code, w.Body)
		}
	}
	w := httptest.NewRecorder()
	if a.ServeHTTP(w, request()); w.Code != http.StatusOK {
		t.Errorf("without a connection: got %d %s, want 200", w.Code, w.Body)
	}
}

// A body over the limit is answered with status 413.
func TestLargeBody(t *testing.T) {
	body := http.MaxBytesReader(httptest.NewRecorder(), io.NopCloser(strings.NewReader(`{"name":"a.b"}`)), 5)
	name, _, err := parseCommand(body)
	code, text := errorCode(orNil(err))
	if err == nil || code != http.StatusRequestEntityTooLarge || !strings.Contains(text, "5 bytes") {
		t.Errorf("got %q, %v, want status 413 with the limit", name, err)
	}
}

// A request that the client cancels while waiting for a command is answered with an error.
func TestWaitCancelled(t *testing.T) {
	f := start(t)
	f.token.Set(secret)
	id, _ := f.post("test.slow", "{}", "")["id"].(string)
	defer close(f.release)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	w := httptest.NewRecorder()
	r := httptest.NewRequestWithContext(ctx, "GET", "/v1/commands/"+id+"?wait=true&agent_token="+secret, http.NoBody)
	if f.Config.Handler.ServeHTTP(w, r); w.Code < 500 {
		t.Errorf("got %d %s, want an error", w.Code, w.Body)
	}
}

// Responses have a Content-Length. Errors never contain "agent_token", from which a conductor concludes that the agent
// does not support tokens.
func TestAnswers(t *testing.T) {
	f := start(t)
	f.token.Set(secret)
	for range 30 {
		f.post("test.text", "{}", "true")
	}
	path := "/v1/commands/?agent_token=" + secret
	answer, body := f.do("GET", path, "")
	if got := answer.header.Get("Content-Length"); got != strconv.Itoa(len(body)) || len(body) < 2048 {
		t.Errorf("got Content-Length %q, want %d", got, len(body))
	}
	f.want("POST", path, `{"name":"agent_token.x","params":{}}`, 404,
		fails("Client", "Not found: Extension with id agent token not found."))
}

func TestCertificateOfAnUnknownCurve(t *testing.T) {
	_, err := NewCertificate(CertificateOptions{Host: "192.0.2.7", Curve: "p224"})
	if err == nil || !strings.Contains(err.Error(), `"p224"`) {
		t.Errorf("got %v, want an error that names the curve", err)
	}
}
