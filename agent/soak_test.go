package agent

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"runtime"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"ironroot/agent/config"
	"ironroot/agent/journal"
	"ironroot/agent/status"
	"ironroot/netboot/sntp/sntptest"
)

// An agent runs for half a year in fast track. Ironic receives a heartbeat in every interval and executes 10,000
// commands, with a connection for each as it does. Key and certificate stay the same and are valid, also after a
// failure of the API. The time server sets the clock every hour. Neither memory nor the number of goroutines grows.
//
// Parity: A14 (lifetime), R4 (every hour)
func TestSoak(t *testing.T) {
	const (
		commands = 10_000
		period   = 180 * 24 * time.Hour
		interval = 2 * time.Hour // of heartbeats, as Ironic allows it
	)
	timeServer := sntptest.Start(t, "127.0.0.1:0", sntptest.Reply{}) // outside of the bubble: a socket is no timer
	system := bareMachine(t)
	synctest.Test(t, func(t *testing.T) {
		time.Sleep(time.Until(time.Date(2027, 1, 1, 0, 0, 0, 0, time.UTC)))
		began := time.Now()
		ironic := &fakeIronic{
			beats:  make(chan beat, 100),
			config: map[string]any{"heartbeat_timeout": int(interval.Seconds()), "agent_token": testToken},
		}
		apiPort, ironicPort := newPipes(), newPipes()
		ironic.callBack = func(beat) error { return nil } // commands do
		ironic.Server = httptest.NewUnstartedServer(ironic)
		_ = ironic.Listener.Close()
		ironic.Listener = ironicPort
		ironic.Start()
		options, err := config.Load(config.Sources{Args: []string{
			"--advertise-host=192.0.2.7", "--insecure", "--api-url=" + ironic.URL, "--auto-tls-lifetime=31536000",
			"--ntp-server=" + timeServer.Address(), "--disk-wait-attempts=0", "--tls-certificate-curve=p256",
		}})
		if err != nil {
			t.Fatal(err)
		}
		a := newAgent(Options{
			Config: options, Journal: journal.New(io.Discard, nil, 1<<20), Destructive: true, System: system,
			Dialer: ironicPort, Board: status.NewBoard("", nil),
			Ports: listening(func(context.Context, string, int) (net.Listener, error) { return apiPort.open(), nil }),
		})
		machine := &fakeClocks{withoutHardwareRTC: true}
		a.clocks = machine
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan error, 1)
		go func() { ended <- a.startAndServe(ctx) }()

		first := <-ironic.beats
		var beats, early int
		var earlyMemory uint64
		for n := range commands {
			for next := began.Add(period / commands * time.Duration(n)); time.Now().Before(next); {
				select {
				case b := <-ironic.beats:
					beats++
					ironic.clear()
					if b.called != nil || b.CA != first.CA || b.CallbackURL != first.CallbackURL {
						t.Fatalf("heartbeat %d after %v: got %v, same certificate %v, URL %s, want the first ones, %s",
							beats, time.Since(began), b.called, b.CA == first.CA, b.CallbackURL, first.CallbackURL)
					}
				case <-time.After(time.Until(next)):
				}
			}
			soakCommand(t, apiPort, first, n)
			switch n {
			case commands / 8:
				apiPort.broken <- errors.New("accept: too many open files")
			case commands / 4:
				early, earlyMemory = runtime.NumGoroutine(), usedMemory()
			}
		}
		late, lateMemory := runtime.NumGoroutine(), usedMemory()
		t.Logf("%d heartbeats; %d KiB and %d goroutines after a quarter, %d KiB and %d at the end",
			beats, earlyMemory>>10, early, lateMemory>>10, late)
		if least := int(period / interval); beats < least {
			t.Errorf("got %d heartbeats, want at least %d", beats, least)
		}
		if hours := int(period / time.Hour); timeServer.Asked() < hours-1 || timeServer.Asked() > hours+1 {
			t.Errorf("time server: got %d queries, want one each hour, %d", timeServer.Asked(), hours)
		}
		if lateMemory > earlyMemory+1<<20 {
			t.Errorf("memory grew from %d to %d bytes", earlyMemory, lateMemory)
		}
		if late > early+5 {
			t.Errorf("goroutines: got %d at the end, %d before", late, early)
		}
		cancel()
		if err := <-ended; err != nil {
			t.Errorf("agent ended with %v", err)
		}
		// The values are wrong: the kernel's time of the reply is not the bubble's.
		if got, hours := len(machine.system), int(period/time.Hour); got < hours-1 || got > hours+1 {
			t.Errorf("system clock: got set %d times, want once each hour, %d", got, hours)
		}
		a.close()
		ironic.Close()
		// Both ends of a TLS connection that close it at the same time wait for 5 s: a pipe has no buffer for the
		// alert.
		time.Sleep(time.Minute)
	})
}

// soakCommand executes command number n: most list steps, some fail with a long error, and some have a large result.
func soakCommand(t *testing.T, api *pipes, b beat, n int) {
	t.Helper()
	name, params, want := "clean.get_clean_steps", `{"node":{"uuid":"`+nodeUUID+`"},"ports":[]}`, "SUCCEEDED"
	switch {
	case n%100 == 50:
		name, params = "log.collect_system_logs", "{}"
	case n%10 == 5:
		name, want = "clean.execute_clean_step", "FAILED"
		params = `{"step":{"step":"` + strings.Repeat("x", 1000) + `","interface":"deploy"},"node":{"uuid":"` +
			nodeUUID + `"},"ports":[]}`
	}
	var got record
	err := api.request(t, b, "POST", "/v1/commands/?wait=true&agent_token="+b.Token,
		`{"name":"`+name+`","params":`+params+`}`, &got)
	if err != nil || got.Status != want {
		t.Fatalf("command %d, %s: got %s, %v, want %s", n, name, got.Status, err, want)
	}
}

// usedMemory returns the bytes of all objects that are in use.
func usedMemory() uint64 {
	var stats runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&stats)
	return stats.HeapAlloc
}

// pipes is a listener whose connections are pipes within the process, so that a fake clock can advance while they wait.
type pipes struct {
	conns  chan net.Conn
	broken chan error // errors of Accept
	closed chan struct{}
	once   *sync.Once
}

func newPipes() *pipes {
	return &pipes{
		conns: make(chan net.Conn), broken: make(chan error), closed: make(chan struct{}), once: &sync.Once{},
	}
}

// open returns a new listener for the same address.
func (p *pipes) open() *pipes {
	return &pipes{conns: p.conns, broken: p.broken, closed: make(chan struct{}), once: &sync.Once{}}
}

// Accept implements [net.Listener].
func (p *pipes) Accept() (net.Conn, error) {
	select {
	case conn := <-p.conns:
		return conn, nil
	case err := <-p.broken:
		return nil, err
	case <-p.closed:
		return nil, net.ErrClosed
	}
}

// Close implements [net.Listener].
func (p *pipes) Close() error {
	p.once.Do(func() { close(p.closed) })
	return nil
}

// Addr implements [net.Listener].
func (p *pipes) Addr() net.Addr { return &net.TCPAddr{IP: net.IPv4(192, 0, 2, 1), Port: 6385} }

// DialContext connects to the listener that accepts next.
func (p *pipes) DialContext(ctx context.Context, _, _ string) (net.Conn, error) {
	near, far := net.Pipe()
	select {
	case p.conns <- far:
		return near, nil
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

// client returns a client that opens a new connection for each request, and trusts only the certificate of a heartbeat.
func (p *pipes) client(ca string) *http.Client {
	client := trusting(ca)
	transport := client.Transport.(*http.Transport)
	transport.DialContext, transport.DisableKeepAlives = p.DialContext, true
	return client
}

// request sends a request to the agent over a new connection, and trusts only the certificate of a heartbeat.
func (p *pipes) request(t *testing.T, b beat, method, path, body string, into any) error {
	t.Helper()
	client := p.client(b.CA)
	request, err := http.NewRequest(method, b.CallbackURL+path, strings.NewReader(body))
	if err != nil {
		return err
	}
	answer, err := client.Do(request)
	if err != nil {
		return err
	}
	data, err := io.ReadAll(answer.Body)
	if err := errors.Join(err, answer.Body.Close()); err != nil {
		return err
	}
	if answer.StatusCode != http.StatusOK {
		return fmt.Errorf("status %d: %s", answer.StatusCode, bytes.TrimSpace(data))
	}
	if into == nil {
		return nil
	}
	return json.Unmarshal(data, into)
}
