package ironic

import (
	"context"
	"errors"
	"net"
	"net/http"
	"slices"
	"testing"
	"time"

	"golang.org/x/net/dns/dnsmessage"

	"ironroot/internal/goroutine"
	"ironroot/internal/test/testenv"
)

// A panic in a connection attempt counts as a failure.
func TestDialContainsPanics(t *testing.T) {
	testenv.ExpectPanics(t)
	broken := dialFunc(func(context.Context, string, string) (net.Conn, error) { panic("oops") })
	_, err := redialer{broken, nothing{}}.DialContext(t.Context(), "tcp", "192.0.2.1:80")
	var caught *goroutine.PanicError
	if !errors.As(err, &caught) || caught.Value != "oops" {
		t.Errorf("got error %v, want the panic", err)
	}
}

// brokenTransport panics on a request to a host.
type brokenTransport struct {
	http.RoundTripper
	host string
}

func (t brokenTransport) RoundTrip(r *http.Request) (*http.Response, error) {
	if r.URL.Hostname() == t.host {
		panic("in an answer")
	}
	return t.RoundTripper.RoundTrip(r)
}

// A URL whose probe panics counts as unreachable.
func TestReachableContainsPanics(t *testing.T) {
	testenv.ExpectPanics(t)
	net := newNetwork(t)
	net.serve("one", newFake("1.115"))
	net.serve("two", newFake("1.115"))
	c, _ := newClient(t, net)
	c.probe.Transport = brokenTransport{c.probe.Transport, "one"}
	got := c.reachable(t.Context(), []string{"http://one", "http://two", "http://three"})
	if want := []string{"http://two"}; !slices.Equal(got, want) {
		t.Errorf("got %v, want %v", got, want)
	}
}

// panicConn delivers packets, and panics when something is sent.
type panicConn struct {
	net.PacketConn
	packets chan []byte
	sent    int
}

func (c *panicConn) SetReadDeadline(time.Time) error { return nil }

func (c *panicConn) ReadFrom(p []byte) (int, net.Addr, error) { return copy(p, <-c.packets), nil, nil }

func (c *panicConn) WriteTo([]byte, net.Addr) (int, error) {
	c.sent++
	panic("oops")
}

// A multicast DNS packet that causes a panic is dropped; the next one completes the answer.
func TestListenContainsPanics(t *testing.T) {
	testenv.ExpectPanics(t)
	srv := record(instance, dnsmessage.TypeSRV,
		&dnsmessage.SRVResource{Port: 6385, Target: dnsmessage.MustNewName("host.local.")})
	txt := record(instance, dnsmessage.TypeTXT, &dnsmessage.TXTResource{TXT: []string{"path=/"}})
	a := record("host.local.", dnsmessage.TypeA, &dnsmessage.AResource{A: [4]byte{192, 0, 2, 1}})
	conn := &panicConn{packets: make(chan []byte, 2)}
	conn.packets <- packet(t, 7, []dnsmessage.Resource{srv, txt}) // without an address, which is then queried
	conn.packets <- packet(t, 7, []dnsmessage.Resource{srv, txt}, a)
	q := &question{conn: conn, name: dnsmessage.MustNewName(instance), id: 7}
	answers := make(chan service, 1)
	q.listen(t.Context(), answers)
	if s := <-answers; s.port != 6385 || len(s.addresses) != 1 || conn.sent != 1 {
		t.Errorf("got %+v after %d panics, want the service after 1", s, conn.sent)
	}
}
