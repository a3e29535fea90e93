package metrics

import (
	"fmt"
	"log/slog"
	"net"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"ironroot/agent/config"
)

// server receives datagrams.
func server(t *testing.T) (port int, next func() string) {
	t.Helper()
	conn, err := net.ListenUDP("udp", &net.UDPAddr{IP: net.IPv4(127, 0, 0, 1)})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	return conn.LocalAddr().(*net.UDPAddr).Port, func() string {
		buffer := make([]byte, 2048)
		if err := conn.SetReadDeadline(time.Now().Add(time.Minute)); err != nil {
			t.Fatal(err)
		}
		n, err := conn.Read(buffer)
		if err != nil {
			t.Fatal(err)
		}
		return string(buffer[:n])
	}
}

func TestTimer(t *testing.T) {
	host, err := os.Hostname()
	if err != nil {
		t.Fatal(err)
	}
	reversed := strings.Split(host, ".")
	slices.Reverse(reversed)
	for want, c := range map[string]config.Metrics{
		module + ".run_command":              {},
		"site:a." + module + ".run_command":  {GlobalPrefix: "site:a"},
		host + "." + module + ".run_command": {PrependHost: true},
		"site." + strings.Join(reversed, ".") + "." + module + ".run_command": {
			PrependHost: true, PrependHostReverse: true, GlobalPrefix: "site",
		},
	} {
		port, next := server(t)
		c.Backend = "statsd"
		live := config.NewLive(&config.Config{
			Metrics: c, MetricsStatsd: config.MetricsStatsd{StatsdHost: "127.0.0.1", StatsdPort: port},
		})
		New(live, slog.New(slog.DiscardHandler)).Timer("run_command")()
		got := next()
		name, value, _ := strings.Cut(got, ":")
		if name != strings.ReplaceAll(want, ":", "_") || !regexp.MustCompile(`^\d+\.\d{3}\|ms$`).MatchString(value) {
			t.Errorf("got %q, want %s and milliseconds", got, want)
		}
	}
}

func TestHostLabels(t *testing.T) {
	for reverse, want := range map[bool]string{false: "node.rack.site", true: "site.rack.node"} {
		if got := strings.Join(hostLabels("node.rack.site", reverse), "."); got != want {
			t.Errorf("reverse %v: got %s, want %s", reverse, got, want)
		}
	}
}

// lines receives log lines.
type lines chan string

func (l lines) Write(line []byte) (int, error) {
	l <- string(line)
	return len(line), nil
}

// A metric that cannot be sent is logged, and releases its slot. The port does not exist, or the name does not fit
// into a datagram.
func TestFailures(t *testing.T) {
	for server, c := range map[string]config.Config{
		"127.0.0.1:70000": {MetricsStatsd: config.MetricsStatsd{StatsdPort: 70000}},
		"127.0.0.1:8125": {
			Metrics:       config.Metrics{GlobalPrefix: strings.Repeat("x", 1<<16)},
			MetricsStatsd: config.MetricsStatsd{StatsdPort: 8125},
		},
	} {
		logged := make(lines, 1)
		c.Metrics.Backend, c.MetricsStatsd.StatsdHost = "statsd", "127.0.0.1"
		m := New(config.NewLive(&c),
			slog.New(slog.NewTextHandler(logged, &slog.HandlerOptions{Level: slog.LevelDebug})))
		for range 2 * maxPending {
			m.Timer("lost")()
			if line := <-logged; !strings.Contains(line, "metric not sent") || !strings.Contains(line, server) {
				t.Fatalf("got log line %q, want the failure and the server", line)
			}
		}
	}
}

// configured returns metrics with a backend and a statsd server on loopback, and their configuration.
func configured(backend string, port int) (*Metrics, *config.Live) {
	live := config.NewLive(&config.Config{
		Metrics:       config.Metrics{Backend: backend},
		MetricsStatsd: config.MetricsStatsd{StatsdHost: "127.0.0.1", StatsdPort: port},
	})
	return New(live, slog.New(slog.DiscardHandler)), live
}

// The socket of a metric is closed after it was sent.
func TestSocketsAreClosed(t *testing.T) {
	port, next := server(t)
	m, _ := configured("statsd", port)
	for range maxPending {
		m.Timer("sent")()
		next()
	}
	for range maxPending { // until all of them are done
		m.slots <- struct{}{}
	}
	sockets, err := os.ReadFile("/proc/self/net/udp") // proc(5)
	if err != nil {
		t.Fatal(err)
	}
	if got := strings.Count(string(sockets), fmt.Sprintf(" 0100007F:%04X ", port)); got != 1 {
		t.Errorf("sockets with the server's address: got %d, want only the server's:\n%s", got, sockets)
	}
}

// Beyond maxPending concurrent metrics, further ones are dropped without blocking.
func TestDropped(t *testing.T) {
	port, next := server(t)
	m, _ := configured("statsd", port)
	for range maxPending {
		m.slots <- struct{}{}
	}
	m.Timer("dropped")()
	for range maxPending {
		<-m.slots
	}
	m.Timer("sent")()
	if got := next(); !strings.Contains(got, ".sent:") {
		t.Errorf("got %q, want the metric that was sent when there was a place", got)
	}
}

// Without a backend nothing is sent. An unreachable server does not delay requests.
func TestNothingSent(t *testing.T) {
	port, next := server(t)
	m, live := configured("noop", port)
	m.Timer("first")()
	live.Update(func(c *config.Config) { c.Metrics.Backend = "collector" })
	m.Timer("second")()
	live.Update(func(c *config.Config) { c.Metrics.Backend = "statsd" })
	m.Timer("third")()
	if got := next(); !strings.Contains(got, ".third:") {
		t.Errorf("got %q first, want the third", got)
	}
	live.Update(func(c *config.Config) { c.MetricsStatsd.StatsdHost = "host.invalid" })
	for range 1000 {
		m.Timer("lost")()
	}
}
