package agent

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"ironroot/agent/config"
	"ironroot/agent/power"
	"ironroot/agent/status"
	"ironroot/internal/test/testenv"
)

// stubborn is a network that goes down on the third attempt.
type stubborn struct {
	fakeNetwork
	attempts int
}

func (n *stubborn) Down(context.Context) error {
	if n.attempts++; n.attempts < 3 {
		return errors.New("device busy")
	}
	return nil
}

// A lockdown detaches network disks, for a limited time, retries taking the network down until that succeeds, and then
// stops.
func TestLockdownRetries(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := &stubborn{}
		board := status.NewBoard("", nil)
		detachedAt := -1
		logins := 1
		a := newAgent(Options{Config: &config.Config{}, Board: board, Machine: Machine{
			Network: n, Logins: endLoginsFunc(func() { logins = n.attempts }),
			Disks: detachFunc(func(ctx context.Context) {
				if detachedAt < 0 {
					detachedAt = n.attempts
				}
				<-ctx.Done() // the target is gone
			}),
		}})
		ctx, cancel := context.WithTimeout(t.Context(), time.Hour)
		defer cancel()
		portClosed := -1
		if a.lockdown(ctx, func() { portClosed = n.attempts }); n.attempts != 3 || ctx.Err() == nil {
			t.Errorf("ended after %d attempts, %v, want 3 and the end of the context", n.attempts, ctx.Err())
		}
		if detachedAt != 0 {
			t.Errorf("network disks were detached after %d attempts, want 0: they need the network", detachedAt)
		}
		if portClosed != 0 {
			t.Errorf("the port was closed after %d attempts, want 0", portClosed)
		}
		if logins != 0 {
			t.Error("logins were not ended before the network was taken down")
		}
		if got := board.State().Phase; got != status.Lockdown {
			t.Errorf("got phase %q on the board, want %q", got, status.Lockdown)
		}
	})
}

// A function that returns or panics is called again after a pause, until the context ends.
func TestSupervise(t *testing.T) {
	testenv.ExpectPanics(t)
	synctest.Test(t, func(t *testing.T) {
		a := newAgent(Options{Config: &config.Config{}})
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		started, runs := time.Now(), 0
		err := a.supervise(ctx, "part", func(ctx context.Context) error {
			switch runs++; runs {
			case 1:
				return errors.New("ended")
			case 2:
				panic("defect")
			}
			cancel()
			return nil
		})
		if !errors.Is(err, context.Canceled) || runs != 3 || time.Since(started) != 2*restartPause {
			t.Errorf("got %v after %d runs and %v, want the context's error after 3 and %v",
				err, runs, time.Since(started), 2*restartPause)
		}
		ctx, cancel = context.WithTimeout(t.Context(), restartPause/2)
		defer cancel()
		err = a.supervise(ctx, "part", func(context.Context) error { return nil })
		if !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("got %v, want the context's error from the pause", err)
		}
	})
}

// Opening the port is retried until it succeeds.
func TestPortOpensLate(t *testing.T) {
	ironic := newIronic(t)
	listeners := make(chan net.Listener, 10)
	attempts := 0
	r := startAgent(t, func(o *Options) {
		ports := o.Ports
		o.Ports = listening(func(ctx context.Context, host string, port int) (net.Listener, error) {
			if attempts++; attempts == 2 {
				return nil, errors.New("address in use")
			}
			l, err := ports.Listen(ctx, host, port)
			if err == nil {
				listeners <- l
			}
			return l, err
		})
	}, "--api-url="+ironic.URL)
	r.beat(ironic)
	if err := (<-listeners).Close(); err != nil {
		t.Fatal(err)
	}
	<-listeners
	if code, body := r.do("GET", "/v1/status", ""); code != http.StatusOK {
		t.Errorf("got %d %s, want 200", code, body)
	}
}

// After a panic while the API is open, the agent starts over and opens the same port. Until then the board shows the
// panic.
func TestStartsOverWithItsPort(t *testing.T) {
	testenv.ExpectPanics(t)
	ironic := newIronic(t)
	starts, shown := 0, ""
	r := startAgent(t, func(o *Options) {
		board := status.NewBoard("", nil)
		o.Forever, o.Board = true, board
		o.Machine.Media = reloadFunc(func() *config.Config {
			shown = problem(board.State(), "start")
			return nil
		})
		o.Machine.Drivers = onEnter(nil, func(phase string) {
			if phase == "ready" {
				if starts++; starts == 1 {
					panic("a defect")
				}
			}
		})
	}, "--api-url="+ironic.URL)
	if b := r.beat(ironic); b.called != nil || starts != 2 {
		t.Errorf("calling back after start %d: %v", starts, b.called)
	}
	if !strings.Contains(shown, "a defect") {
		t.Errorf("got the problem %q between the starts, want the panic", shown)
	}
}

// A heartbeat follows the end of a command immediately.
func TestHeartbeatAfterCommand(t *testing.T) {
	inBubble(t, func(t *testing.T, ironic *fakeIronic, start startFunc) {
		bare := func(o *Options) { o.Destructive, o.System = true, bareMachine(t) }
		r := start(bare, "--disk_wait_attempts=0")
		r.beat(ironic)
		image := `{"image_info":{"id":"i","urls":["http://192.0.2.1/i"],"checksum":"` + strings.Repeat("a", 64) + `"}}`
		if got := r.run("standby.prepare_image", image); got.Status != "FAILED" {
			t.Errorf("got %s, want FAILED", got.Status)
		}
		r.beat(ironic) // long before the heartbeat interval
	})
}

// brokenPower cannot stop the machine.
type brokenPower struct{}

func (brokenPower) Reboot(context.Context) error   { return errors.New("no reboot") }
func (brokenPower) PowerOff(context.Context) error { return errors.New("no power off") }

// If the machine cannot be stopped, the command fails, also without a network to take down.
func TestMachineDoesNotStop(t *testing.T) {
	for name, want := range map[string]string{"run_image": "no reboot", "power_off": "no power off"} {
		inBubble(t, func(t *testing.T, ironic *fakeIronic, start startFunc) {
			broken := func(o *Options) { o.Destructive, o.Machine = true, Machine{Power: brokenPower{}} }
			r := start(broken)
			r.beat(ironic)
			got := r.run("standby."+name, "{}")
			if details, _ := got.Error["details"].(string); got.Status != "FAILED" || !strings.Contains(details, want) {
				t.Errorf("%s: got %s %v, want FAILED with %q", name, got.Status, got.Error, want)
			}
		})
	}
}

// The machine stops once all requests are answered, or after a time limit.
func TestStopWaitsForRequests(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := startedAgent(t, Options{Destructive: true}, "--standalone", "--agent_token="+testToken)
		p := drainingPower{brokenPower{}, a}
		for name, stop := range map[string]func(context.Context) error{"reboot": p.Reboot, "power off": p.PowerOff} {
			for answered, want := range map[time.Duration]time.Duration{
				time.Second: time.Second, time.Hour: shutdownTimeout,
			} {
				body, sender := io.Pipe()
				done := make(chan struct{})
				go func() {
					defer close(done)
					r := httptest.NewRequest(http.MethodPost, "/v1/commands/?agent_token="+testToken, body)
					a.api.ServeHTTP(httptest.NewRecorder(), r)
				}()
				synctest.Wait()
				started := time.Now()
				time.AfterFunc(answered, func() { _ = sender.Close() })
				if err := stop(t.Context()); err == nil || time.Since(started) != want {
					t.Errorf("%s: got %v after %v, want an attempt after %v", name, err, time.Since(started), want)
				}
				<-done
			}
		}
	})
}

// pipeListener is a port whose connections are pipes.
type pipeListener struct {
	connections chan net.Conn
	closed      chan struct{}
	once        sync.Once
	at          time.Time // when it was closed
}

func (l *pipeListener) Accept() (net.Conn, error) {
	select {
	case c := <-l.connections:
		return c, nil
	case <-l.closed:
		return nil, net.ErrClosed
	}
}

func (l *pipeListener) Close() error {
	l.once.Do(func() { l.at = time.Now(); close(l.closed) })
	return nil
}

func (l *pipeListener) Addr() net.Addr { return &net.UnixAddr{} }

// When the API is stopped, a request in progress is answered, or aborted after a time limit. The port is closed at
// once. In a lockdown it is closed when nothing is waited for any more, also not for a connection without a request.
//
// Parity: E12 (the response of a request in progress)
func TestStoppedAPIAnswers(t *testing.T) {
	const body = `{"name":"none.such","params":{}}`
	for name, c := range map[string]struct {
		locked, silent    bool          // silent: there is no request
		answered          time.Duration // after the stop
		wantClosed, limit time.Duration // of the port; when all connections are closed at the latest
	}{
		"answered": {answered: time.Second, limit: shutdownTimeout},
		"aborted":  {answered: time.Hour, limit: shutdownTimeout},
		"answered in a lockdown": {
			locked: true, answered: time.Second, wantClosed: time.Second, limit: time.Second,
		},
		"aborted in a lockdown": {
			locked: true, answered: time.Hour, wantClosed: shutdownTimeout, limit: shutdownTimeout,
		},
		"no request in a lockdown": {locked: true, silent: true},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				l := &pipeListener{connections: make(chan net.Conn), closed: make(chan struct{})}
				a := startedAgent(t, Options{
					Destructive: true,
					Ports:       listening(func(context.Context, string, int) (net.Listener, error) { return l, nil }),
				}, "--standalone", "--agent_token="+testToken)
				serving, stop := context.WithCancel(t.Context())
				ended := make(chan time.Time, 1)
				go func() {
					_ = a.serveAPI(serving) // it ends with its context
					ended <- time.Now()
				}()
				client, server := net.Pipe()
				defer client.Close() //nolint:errcheck // a pipe
				l.connections <- server
				request := fmt.Sprintf("POST /v1/commands/?agent_token=%s HTTP/1.1\r\nHost: agent\r\n"+
					"Content-Length: %d\r\n\r\n%s", testToken, len(body), body[:1])
				if c.silent {
					request = ""
				}
				if _, err := io.WriteString(client, request); err != nil {
					t.Fatal(err)
				}
				synctest.Wait() // the agent reads the body, or the request
				if c.locked {
					a.Lockdown()
				}
				stopped := time.Now()
				stop()
				time.Sleep(c.answered)
				if !c.silent {
					go func() { _, _ = io.WriteString(client, body[1:]) }() // fails if the connection is closed
				}
				answer, err := http.ReadResponse(bufio.NewReader(client), nil)
				if aborted := c.silent || c.answered > shutdownTimeout; aborted != (err != nil) {
					t.Errorf("got %v and %v, want an answer unless the request takes longer than %v",
						answer, err, shutdownTimeout)
				} else if !aborted {
					text, err := io.ReadAll(answer.Body)
					err = errors.Join(err, answer.Body.Close())
					if err != nil || answer.StatusCode != http.StatusNotFound ||
						!strings.Contains(string(text), "Extension with id none not found") {
						t.Errorf("got %s, %q and %v, want status 404", answer.Status, text, err)
					}
				}
				if got := (<-ended).Sub(stopped); got > c.limit {
					t.Errorf("the API ended after %v, want at most %v", got, c.limit)
				}
				if got := l.at.Sub(stopped); got != c.wantClosed {
					t.Errorf("the port was closed after %v, want %v", got, c.wantClosed)
				}
			})
		})
	}
}

// A running command ends with the agent.
func TestCommandsEndWithTheAgent(t *testing.T) {
	ended := make(chan struct{})
	machine := endingPower{fakePower{make(chan string, 1)}, ended}
	t.Run("agent", func(t *testing.T) {
		alone := func(o *Options) { o.Destructive, o.Machine.Power = true, machine }
		r := startAgent(t, alone, "--standalone", "--agent_token="+testToken)
		r.reach("ready")
		code, body := r.do("POST", "/v1/commands/?agent_token="+testToken, `{"name":"standby.run_image","params":{}}`)
		if code != http.StatusOK {
			t.Fatalf("got %d %s, want 200", code, body)
		}
		<-machine.called
	})
	select {
	case <-ended:
	case <-time.After(time.Minute):
		t.Error("the command is still running")
	}
}

// endingPower closes ended when the caller's context ends.
type endingPower struct {
	fakePower
	ended chan struct{}
}

func (p endingPower) Reboot(ctx context.Context) error {
	err := p.fakePower.Reboot(ctx)
	close(p.ended)
	return err
}

// Options have safe defaults: the machine cannot be stopped, and reading its files is bounded in time.
func TestOptionDefaults(t *testing.T) {
	for _, o := range []Options{{}, {Machine: Machine{Power: brokenPower{}}}, {Destructive: true}} {
		o.Config = &config.Config{}
		a := newAgent(o)
		if _, refused := a.o.Machine.Power.(power.Refused); !refused {
			t.Errorf("%+v: got power %T, want one that refuses", o, a.o.Machine.Power)
		}
		if a.o.Ports == nil || a.o.System.Files == nil || a.o.Pause != 30*time.Second || a.o.Version != Version {
			t.Errorf("%+v: got %+v, want all that is needed", o, a.o)
		}
	}
}
