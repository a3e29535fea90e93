package burnin

import (
	"context"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"

	"ironroot/agent/hardware/burnin/tooz"
	"ironroot/internal/goroutine"
	"ironroot/internal/test/testenv"
)

func TestNetworkOptions(t *testing.T) {
	const (
		static  = `"agent_burnin_fio_network_config": {"role": "writer", "partner": "node-2"}`
		backend = `"agent_burnin_fio_network_pairing_backend_url": `
	)
	for info, want := range map[string]NetworkOptions{
		static: {Writer: true, Partner: "node-2", Runtime: 21600 * time.Second},
		static + `, "agent_burnin_fio_network_runtime": 60, "agent_burnin_fio_network_outputfile": "/o"`: {
			Writer: true, Partner: "node-2", Runtime: time.Minute, Output: "/o",
		},
		`"agent_burnin_fio_network_config": {"role": "reader", "partner": "::1"}`: {
			Partner: "::1", Runtime: 21600 * time.Second,
		},
		`"agent_burnin_fio_network_config": {"role": "reader", "partner": "[2001:db8::1]"}`: {
			Partner: "2001:db8::1", Runtime: 21600 * time.Second,
		},
		static + `, ` + backend + `"etcd3://x"`: {Writer: true, Partner: "node-2", Runtime: 21600 * time.Second},
		backend + `"zookeeper://x"`: {
			Runtime: 21600 * time.Second,
			Pairing: &tooz.Options{Group: "ironic.network-burnin", Timeout: 900 * time.Second},
		},
		backend + `"kazoo://x:1", "agent_burnin_fio_network_pairing_timeout": "10m",
			"agent_burnin_fio_network_pairing_group_name": "rack-7"`: {
			Runtime: 21600 * time.Second,
			Pairing: &tooz.Options{Group: "rack-7", Timeout: 10 * time.Minute},
		},
	} {
		got, err := networkOptions(t, info)
		if got.Pairing != nil {
			got.Pairing.Backend = nil // see TestParseURL of tooz
		}
		if diff := cmp.Diff(want, got); diff != "" || err != nil {
			t.Errorf("%s: %v (-want +got):\n%s", info, err, diff)
		}
	}
	for info, want := range map[string]string{
		``:                                      "driver_info has neither agent_burnin_fio_network_config nor agent_b",
		`"agent_burnin_fio_network_config": {}`: "driver_info has neither agent_burnin_fio_network_config nor agent_b",
		`"agent_burnin_fio_network_config": "writer"`: "driver_info agent_burnin_fio_network_config: got writer, " +
			"want an object",
		`"agent_burnin_fio_network_config": {"role": "both", "partner": "x"}`:  "got role both, want writer or reader",
		`"agent_burnin_fio_network_config": {"role": "writer"}`:                "got partner <nil>",
		`"agent_burnin_fio_network_config": {"role": "writer", "partner": ""}`: `partner: got ""`,
		backend + `"etcd3://x"`: `driver_info agent_burnin_fio_network_pairing_backend_url: backend "etcd3" is not`,
		backend + `7`:           "pairing_backend_url: want a string",
		backend + `""`:          "driver_info has neither",
		backend + `"zookeeper://x", "agent_burnin_fio_network_pairing_timeout": 0`:        "pairing_timeout: got 0",
		backend + `"zookeeper://x", "agent_burnin_fio_network_pairing_timeout": "x"`:      `pairing_timeout: got "x"`,
		backend + `"zookeeper://x", "agent_burnin_fio_network_pairing_group_name": "a/b"`: `name: got group "a/b"`,
	} {
		if _, err := networkOptions(t, info); !errors.Is(err, ErrPairing) || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: got error %v, want %q", info, err, want)
		}
	}
	_, err := networkOptions(t, `"agent_burnin_fio_network_runtime": "x"`)
	if err == nil || errors.Is(err, ErrPairing) {
		t.Errorf("runtime: got error %v, want one of the setting", err)
	}
}

func networkOptions(t *testing.T, info string) (NetworkOptions, error) {
	t.Helper()
	var values map[string]any
	if err := json.Unmarshal([]byte("{"+info+"}"), &values); err != nil {
		t.Fatal(err)
	}
	return NetworkOptionsOf(values)
}

// newNetworkTest returns one node of a pair on the loopback interface.
func newNetworkTest(t *testing.T, port int, writer bool) *networkTest {
	t.Helper()
	m, _ := machine(t, nil)
	return &networkTest{
		Machine: m, o: NetworkOptions{Writer: writer, Partner: "127.0.0.1", Runtime: 50 * time.Millisecond},
		port: port, retry: 5 * time.Millisecond, wait: time.Hour, silence: time.Minute, drain: time.Minute,
	}
}

// Both directions are tested, and each node knows how much was verified.
//
// Parity: P9 (network, both nodes on one machine)
func TestNetwork(t *testing.T) {
	port := testenv.Port(t)
	first, second := newNetworkTest(t, port, true), newNetworkTest(t, port, false)
	first.o.Output = filepath.Join(t.TempDir(), "net")
	var sent [2]atomic.Int64 // bytes of data
	first.damage = func(message []byte) { sent[0].Add(int64(len(message) - messageHeader)) }
	second.damage = func(message []byte) { sent[1].Add(int64(len(message) - messageHeader)) }
	var reports [2]*NetworkReport
	var errs [2]error
	goroutine.Do(
		func() { reports[0], errs[0] = first.run(t.Context()) },
		func() { reports[1], errs[1] = second.run(t.Context()) },
	)
	if errs[0] != nil || errs[1] != nil {
		t.Fatalf("got errors %v", errs)
	}
	const least = connections * messageBytes
	a, b := reports[0], reports[1]
	if want := sent[0].Load(); want < least || a.Sent != want || b.Received != want {
		t.Errorf("first direction: got %d bytes sent and %d received, want %d", a.Sent, b.Received, want)
	}
	if want := sent[1].Load(); want < least || b.Sent != want || a.Received != want {
		t.Errorf("second direction: got %d bytes sent and %d received, want %d", b.Sent, a.Received, want)
	}
	if a.Partner != "127.0.0.1" || a.Connections != connections || a.Seconds < 0.1 {
		t.Errorf("got report %+v, want 2 directions of 50 ms with %d connections", a, connections)
	}
	for role, direction := range map[string]string{
		"writer": fmt.Sprintf(`"write": { "io_bytes": %d,`, a.Sent),
		"reader": fmt.Sprintf(`"read": { "io_bytes": %d,`, a.Received),
	} {
		text, err := os.ReadFile(first.o.Output + "." + role)
		flat := strings.Join(strings.Fields(string(text)), " ")
		if err != nil || !strings.Contains(flat, `"jobname": "`+role+`"`) || !strings.Contains(flat, direction) {
			t.Errorf("%s: got output file %s and %v, want one with %s", role, text, err, direction)
		}
	}
}

// pairing implements pairer.
type pairing func(o tooz.Options) (tooz.Partner, error)

func (p pairing) pair(_ context.Context, _ *slog.Logger, o tooz.Options) (tooz.Partner, error) {
	return p(o)
}

// Nodes that are paired have the roles and the partners that pairing returned. A partner that is gone is not waited for
// longer than for pairing, and the error of pairing is one of a missing partner.
func TestNetworkPaired(t *testing.T) {
	port := testenv.Port(t)
	var nodes [2]*networkTest
	for i := range nodes {
		n := newNetworkTest(t, port, i != 0) // the roles are swapped
		n.o.Partner, n.o.Pairing = "", &tooz.Options{Group: "group", Timeout: time.Hour}
		n.pairer = pairing(func(o tooz.Options) (tooz.Partner, error) {
			if o.Group != "group" {
				t.Errorf("got group %q", o.Group)
			}
			return tooz.Partner{Name: "127.0.0.1", First: i == 0}, nil
		})
		nodes[i] = n
	}
	var reports [2]*NetworkReport
	var errs [2]error
	goroutine.Do(
		func() { reports[0], errs[0] = nodes[0].run(t.Context()) },
		func() { reports[1], errs[1] = nodes[1].run(t.Context()) },
	)
	if errs != [2]error{} || reports[0].Partner != "127.0.0.1" || reports[0].Sent == 0 ||
		reports[0].Sent != reports[1].Received {
		t.Errorf("got %+v, %+v and %v", reports[0], reports[1], errs)
	}
	for _, n := range nodes {
		n.o.Pairing.Timeout = 10 * time.Millisecond
		if _, err := n.run(t.Context()); err == nil || !strings.Contains(err.Error(), "within 10ms") {
			t.Errorf("partner is gone: got %v", err)
		}
	}
	broken := errors.New("no session")
	nodes[0].pairer = pairing(func(tooz.Options) (tooz.Partner, error) { return tooz.Partner{}, broken })
	if _, err := nodes[0].run(t.Context()); !errors.Is(err, broken) || !errors.Is(err, ErrPairing) {
		t.Errorf("got %v, want %v", err, broken)
	}
	ctx, cancel := context.WithCancelCause(t.Context())
	cancel(broken)
	if _, err := nodes[0].run(ctx); !errors.Is(err, broken) || errors.Is(err, ErrPairing) {
		t.Errorf("cancelled: got %v, want %v only", err, broken)
	}
}

// Data that differ are errors of both nodes.
func TestNetworkDamaged(t *testing.T) {
	for name, test := range map[string]struct {
		damage func(message []byte)
		want   string
	}{
		"data":     {func(b []byte) { b[len(b)-1] ^= 1 }, "message 0 has a wrong checksum"},
		"order":    {func(b []byte) { binary.LittleEndian.PutUint64(b, 7) }, "got the header of message 7"},
		"length":   {func(b []byte) { b[13] ^= 1 }, "bytes, want that of message 0"},
		"too soon": {func(b []byte) { clear(b[8:16]) }, "partner has sent no data"},
	} {
		t.Run(name, func(t *testing.T) {
			port := testenv.Port(t)
			first, second := newNetworkTest(t, port, true), newNetworkTest(t, port, false)
			first.damage = test.damage
			var errs [2]error
			goroutine.Do(
				func() { _, errs[0] = first.run(t.Context()) },
				func() { _, errs[1] = second.run(t.Context()) },
			)
			if errs[0] == nil || !strings.HasPrefix(errs[0].Error(), "writer for 127.0.0.1: ") {
				t.Errorf("sender: got error %v, want one", errs[0])
			}
			if errs[1] == nil || !strings.Contains(errs[1].Error(), test.want) {
				t.Errorf("receiver: got error %v, want %q", errs[1], test.want)
			}
		})
	}
}

// Only the partner can connect.
func TestNetworkStranger(t *testing.T) {
	port := testenv.Port(t)
	node := newNetworkTest(t, port, true)
	node.o.Partner = "127.0.0.2"
	ctx, cancel := context.WithCancelCause(t.Context())
	ended := errors.New("ended")
	var rejected atomic.Bool
	goroutine.Do(
		func() {
			if _, err := node.run(ctx); !errors.Is(err, ended) {
				t.Errorf("got error %v, want %v", err, ended)
			}
		},
		func() {
			defer cancel(ended)
			for t.Context().Err() == nil {
				c, err := net.Dial("tcp", net.JoinHostPort("127.0.0.1", strconv.Itoa(port)))
				if err != nil {
					continue // the node does not listen yet
				}
				n, err := c.Read(make([]byte, 1))
				rejected.Store(n == 0 && err != nil)
				c.Close() //nolint:errcheck // of a test
				return
			}
		},
	)
	if !rejected.Load() {
		t.Error("a connection of another host was accepted")
	}
}

// A partner that does not appear, does not complete its connections or does not stop is an error. Nothing listens
// after it.
func TestNetworkLimits(t *testing.T) {
	closed := func(port int) {
		t.Helper()
		c, err := net.Dial("tcp", net.JoinHostPort("127.0.0.1", strconv.Itoa(port)))
		if err == nil {
			c.Close() //nolint:errcheck // of a test
			t.Error("the port is still open")
		}
	}
	fails := func(node *networkTest, want string) {
		t.Helper()
		ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute) // far more than each limit
		defer cancel()
		if _, err := node.run(ctx); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("got error %v, want %q", err, want)
		}
		closed(node.port)
	}
	node := newNetworkTest(t, testenv.Port(t), true)
	node.wait = 10 * time.Millisecond
	fails(node, "writer for 127.0.0.1: partner has opened 0 of 16 connections: no other within 10ms")

	node = newNetworkTest(t, testenv.Port(t), false)
	node.wait = 10 * time.Millisecond
	fails(node, "reader for 127.0.0.1: partner has not accepted connections within 10ms: dial tcp ")

	node = newNetworkTest(t, testenv.Port(t), false)
	node.o.Partner = "no name" // is not asked of a server
	fails(node, "look up partner: lookup no name: no such host")

	node = newNetworkTest(t, testenv.Port(t), true)
	node.silence = 50 * time.Millisecond
	ended := make(chan struct{})
	goroutine.Do(
		func() {
			defer close(ended)
			fails(node, "writer for 127.0.0.1: partner has opened 1 of 16 connections: no other within 50ms")
		},
		func() {
			for {
				c, err := net.Dial("tcp", net.JoinHostPort("127.0.0.1", strconv.Itoa(node.port)))
				if err == nil {
					<-ended
					c.Close() //nolint:errcheck // of a test
					return
				}
			}
		},
	)
	port := testenv.Port(t)
	gone := newNetworkTest(t, port, false)
	gone.drain, gone.o.Runtime = 20*time.Millisecond, time.Hour
	goroutine.Do(
		func() {
			fails(gone, "writer for 127.0.0.1: partner has opened 0 of 16 connections: no other within 20ms")
		},
		func() {
			partner := newNetworkTest(t, port, true)
			partner.partner = []netip.Addr{netip.MustParseAddr("127.0.0.1")}
			if _, _, err := partner.send(t.Context()); err != nil {
				t.Error(err)
			}
		},
	)
	port = testenv.Port(t)
	first, second := newNetworkTest(t, port, true), newNetworkTest(t, port, false)
	first.o.Runtime = time.Hour
	second.drain = time.Millisecond
	goroutine.Do(
		func() { fails(first, "writer for 127.0.0.1: ") },
		func() {
			fails(second, "reader for 127.0.0.1: partner still sends 1ms after the end of this node's runtime of 50ms")
		},
	)
}

// A partner that stops reading, sending or answering is an error.
func TestNetworkSilentPartner(t *testing.T) {
	const limit = 10 * time.Millisecond
	far := time.Now().Add(time.Hour)
	for name, test := range map[string]struct {
		silence, drain time.Duration
		work           func(*networkTest, net.Conn) (int64, error)
		partner        func(net.Conn)
		want           string
	}{
		"reads nothing": {
			silence: limit, drain: time.Hour,
			work:    func(n *networkTest, c net.Conn) (int64, error) { return n.sendOn(c, far) },
			partner: func(net.Conn) {},
			want:    "write pipe: i/o timeout",
		},
		"does not answer": {
			silence: time.Hour, drain: limit,
			work: func(n *networkTest, c net.Conn) (int64, error) {
				return n.sendOn(unlimitedWrites{c}, time.Time{})
			},
			partner: func(c net.Conn) { io.Copy(io.Discard, c) }, //nolint:errcheck // until the connection is closed
			want:    "partner has not verified the data: read pipe: i/o timeout",
		},
		"sends nothing": {
			silence: limit, drain: time.Hour,
			work:    func(n *networkTest, c net.Conn) (int64, error) { return n.receiveOn(c, far) },
			partner: func(net.Conn) {},
			want:    "message 0: read pipe: i/o timeout",
		},
		"sends half a message": {
			silence: limit, drain: time.Hour,
			work: func(n *networkTest, c net.Conn) (int64, error) { return n.receiveOn(c, far) },
			partner: func(c net.Conn) {
				message := make([]byte, messageHeader+messageBytes)
				putHeader(message, 0)
				c.Write(message[:messageBytes/2]) //nolint:errcheck // the error is that of the receiver
			},
			want: "message 0: read pipe: i/o timeout",
		},
	} {
		t.Run(name, func(t *testing.T) {
			node := newNetworkTest(t, 0, true)
			node.silence, node.drain = test.silence, test.drain
			near, other := net.Pipe()
			// Without a limit the test would never end.
			timer := goroutine.AfterTime(time.Minute, func() { near.Close() }) //nolint:errcheck // of a test
			defer timer.Stop()
			goroutine.Do(
				func() {
					defer other.Close() //nolint:errcheck // of a test
					n, err := test.work(node, near)
					if n != 0 || err == nil || err.Error() != test.want {
						t.Errorf("got %d bytes and error %v, want none and %q", n, err, test.want)
					}
				},
				func() { test.partner(other) },
			)
		})
	}
}

// unlimitedWrites is a connection whose deadlines limit only reads: a busy machine must not end a write first.
type unlimitedWrites struct{ net.Conn }

func (c unlimitedWrites) SetDeadline(t time.Time) error { return c.SetReadDeadline(t) }

// A partner whose host does not answer after the first connections is an error.
func TestNetworkSilentHost(t *testing.T) {
	node := newNetworkTest(t, fullQueue(t), false)
	node.silence = 50 * time.Millisecond
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute) // the kernel gives up after two minutes
	defer cancel()
	if _, err := node.run(ctx); err == nil || !strings.Contains(err.Error(), " of 16: dial tcp ") ||
		!strings.HasSuffix(err.Error(), ": i/o timeout") {
		t.Errorf("got error %v, want a timeout of a connection", err)
	}
}

// fullQueue returns a port whose listener accepts no connections: the kernel does not answer attempts once its queue is
// full. The queue is longer than one, so that the first attempt can be repeated if a busy machine misses its limit.
func fullQueue(t *testing.T) (port int) {
	t.Helper()
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_STREAM, 0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { unix.Close(fd) }) //nolint:errcheck // of a test
	if err := unix.Bind(fd, &unix.SockaddrInet4{Addr: [4]byte{127, 0, 0, 1}}); err != nil {
		t.Fatal(err)
	}
	if err := unix.Listen(fd, connections/2); err != nil {
		t.Fatal(err)
	}
	address, err := unix.Getsockname(fd)
	if err != nil {
		t.Fatal(err)
	}
	return address.(*unix.SockaddrInet4).Port
}

// Each wait ends with the context. Nothing listens after it.
func TestNetworkCancelled(t *testing.T) {
	ended := errors.New("ended")
	for _, writer := range []bool{true, false} {
		ctx, cancel := context.WithCancelCause(t.Context())
		node := newNetworkTest(t, testenv.Port(t), writer)
		goroutine.AfterTime(20*time.Millisecond, func() { cancel(ended) })
		if _, err := node.run(ctx); !errors.Is(err, ended) {
			t.Errorf("writer %v: got error %v, want %v", writer, err, ended)
		}
		l, err := net.Listen("tcp", net.JoinHostPort("", strconv.Itoa(node.port)))
		if err != nil {
			t.Errorf("writer %v: the port is still open: %v", writer, err)
			continue
		}
		l.Close() //nolint:errcheck // of a test
	}
	port := testenv.Port(t)
	first, second := newNetworkTest(t, port, true), newNetworkTest(t, port, false)
	first.o.Runtime = time.Hour
	ctx, cancel := context.WithCancelCause(t.Context())
	var started atomic.Bool
	first.damage = func([]byte) {
		if started.CompareAndSwap(false, true) {
			cancel(ended)
		}
	}
	var errs [2]error
	goroutine.Do(
		func() {
			_, errs[0] = first.run(ctx)
			cancel(errs[0]) // the second node would wait for the first one
		},
		func() { _, errs[1] = second.run(ctx) },
	)
	if !errors.Is(errs[0], ended) || !errors.Is(errs[1], ended) {
		t.Errorf("got errors %v, want %v", errs, ended)
	}
}
