// Package metrics sends the durations of API requests to a statsd server over UDP, as configured by the operator or the
// lookup response: name:value|ms, the value in milliseconds (statsd's metric type "ms").
//
// Metrics never delay or fail what they measure: a metric that cannot be sent at once is dropped. The backend
// collector, which in ironic-python-agent keeps metrics in memory, sends nothing.
package metrics

import (
	"context"
	"log/slog"
	"net"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"

	"ironroot/agent/config"
	"ironroot/internal/goroutine"
)

const (
	// module is the module name that ironic-python-agent uses, so that dashboards need no change.
	module      = "ironic_python_agent.api.app"
	sendTimeout = 2 * time.Second // for resolving the server's name and sending
	maxPending  = 8               // metrics that are being sent concurrently
)

// Metrics sends metrics according to the current configuration. It is safe for concurrent use.
type Metrics struct {
	config *config.Live
	log    *slog.Logger
	slots  chan struct{}
}

// New returns a Metrics, which sends nothing unless metrics.backend is statsd.
func New(c *config.Live, log *slog.Logger) *Metrics {
	return &Metrics{config: c, log: log, slots: make(chan struct{}, maxPending)}
}

// Timer starts a measurement. The function it returns sends the elapsed time as metric name.
func (m *Metrics) Timer(name string) (stop func()) {
	started := time.Now()
	return func() { m.send(name, time.Since(started)) }
}

func (m *Metrics) send(name string, took time.Duration) {
	c := m.config.Get()
	if c.Metrics.Backend != "statsd" {
		return
	}
	select {
	case m.slots <- struct{}{}:
	default:
		return
	}
	milliseconds := strconv.FormatFloat(float64(took)/float64(time.Millisecond), 'f', 3, 64)
	line := fullName(c.Metrics, name) + ":" + milliseconds + "|ms"
	server := net.JoinHostPort(c.MetricsStatsd.StatsdHost, strconv.Itoa(c.MetricsStatsd.StatsdPort))
	goroutine.Go(func() error { return transmit(server, line) }, func(err error) {
		<-m.slots
		if err != nil {
			m.log.Debug("metric not sent", "server", server, "err", err)
		}
	})
}

func transmit(server, line string) error {
	ctx, cancel := context.WithTimeout(context.Background(), sendTimeout)
	defer cancel()
	var d net.Dialer
	conn, err := d.DialContext(ctx, "udp", server)
	if err != nil {
		return err
	}
	defer conn.Close() //nolint:errcheck // closing does not affect the sent datagram
	_, err = conn.Write([]byte(line))
	return err
}

// fullName returns the name with its prefixes: [global_prefix.][host.]module.name.
func fullName(c config.Metrics, name string) string {
	parts := []string{module, name}
	if c.PrependHost {
		if host, err := os.Hostname(); err == nil {
			parts = append(hostLabels(host, c.PrependHostReverse), parts...)
		}
	}
	if c.GlobalPrefix != "" {
		parts = append([]string{c.GlobalPrefix}, parts...)
	}
	return clean(strings.Join(parts, "."))
}

// hostLabels returns the labels of a host name, in reverse order if reverse is set.
func hostLabels(host string, reverse bool) []string {
	labels := strings.Split(host, ".")
	if reverse {
		slices.Reverse(labels)
	}
	return labels
}

// clean replaces characters that end a name or a line in statsd's protocol.
func clean(name string) string {
	return strings.Map(func(r rune) rune {
		if r <= ' ' || strings.ContainsRune(":|@#", r) {
			return '_'
		}
		return r
	}, name)
}
