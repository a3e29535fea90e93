package server

import (
	"bufio"
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/netip"
	"testing"
	"time"
)

// eventTimeout limits the wait for an event.
const eventTimeout = time.Minute

// tftpPeer is a client of one transfer, with an address of its own.
type tftpPeer struct {
	t      *testing.T
	conn   *net.UDPConn
	server netip.AddrPort // of the transfer, from the first block on
	block  uint16         // the last that arrived
}

// request requests a file from an address.
func request(t *testing.T, s *TFTP, from string) *tftpPeer {
	t.Helper()
	conn, err := net.ListenUDP("udp", &net.UDPAddr{IP: net.ParseIP(from)})
	if err != nil {
		t.Fatal(err)
	}
	p := &tftpPeer{t: t, conn: conn}
	t.Cleanup(func() {
		// Otherwise the server would wait for the client.
		if p.server.IsValid() {
			_, _ = conn.WriteToUDPAddrPort([]byte("\x00\x05\x00\x00aborted\x00"), p.server)
		}
		_ = conn.Close()
	})
	if err := conn.SetDeadline(time.Now().Add(eventTimeout)); err != nil {
		t.Fatal(err)
	}
	if _, err := conn.WriteToUDPAddrPort([]byte("\x00\x01sub/file\x00octet\x00"), s.Addr()); err != nil {
		t.Fatal(err)
	}
	return p
}

// receive waits for the next block. ok is false if the server sends an error instead.
func (p *tftpPeer) receive() (content []byte, ok bool) {
	p.t.Helper()
	buffer := make([]byte, 1500)
	for {
		n, from, err := p.conn.ReadFromUDPAddrPort(buffer)
		if err != nil {
			p.t.Fatal(err)
		}
		p.server = from
		switch kind, number := binary.BigEndian.Uint16(buffer), binary.BigEndian.Uint16(buffer[2:]); {
		case kind == 5:
			return nil, false
		case kind == 3 && number == p.block+1:
			p.block = number
			return buffer[4:n], true
		}
	}
}

// acknowledge acknowledges the last block.
func (p *tftpPeer) acknowledge() {
	p.t.Helper()
	if _, err := p.conn.WriteToUDPAddrPort(binary.BigEndian.AppendUint16([]byte{0, 4}, p.block), p.server); err != nil {
		p.t.Fatal(err)
	}
}

// next acknowledges a block and waits for the next one.
func (p *tftpPeer) next() bool {
	p.t.Helper()
	p.acknowledge()
	_, ok := p.receive()
	return ok
}

// confirmed starts a transfer and continues it until it is confirmed. It reports whether the server allows it.
func confirmed(t *testing.T, s *TFTP, from string) (*tftpPeer, bool) {
	t.Helper()
	p := request(t, s, from)
	if _, ok := p.receive(); !ok {
		return p, false
	}
	for range tftpBlock/512 + 1 {
		if !p.next() {
			return p, false
		}
	}
	return p, true
}

// fetches reports whether a client gets a whole file.
func fetches(t *testing.T, s *TFTP, from string, want []byte) bool {
	t.Helper()
	p := request(t, s, from)
	var got []byte
	for {
		content, ok := p.receive()
		if !ok {
			return false
		}
		got = append(got, content...)
		p.acknowledge()
		if len(content) < 512 {
			return bytes.Equal(got, want)
		}
	}
}

func limitedTFTP(t *testing.T, content []byte) *TFTP {
	t.Helper()
	s, err := ListenTFTP(t.Context(), FilesConfig{Listen: loopback, Root: directory(t, content)})
	if err != nil {
		t.Fatal(err)
	}
	s.server.SetRetries(100) // a slow test machine ends no transfer
	t.Cleanup(func() {
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	})
	return s
}

// A client cannot have more transfers than its share, and clients with many do not keep others from being served.
func TestTFTPManyOfOneClient(t *testing.T) {
	content := bytes.Repeat([]byte("0123456789"), 1000)
	s := limitedTFTP(t, content)
	var peers []*tftpPeer
	for client := range maxConfirmed / maxTransfersPerAddress {
		address := fmt.Sprintf("127.0.0.%d", 2+client)
		for n := range maxTransfersPerAddress {
			p, ok := confirmed(t, s, address)
			if !ok {
				t.Fatalf("transfer %d of %s: got an error", n, address)
			}
			peers = append(peers, p)
		}
		if p := request(t, s, address); client == 0 {
			if _, ok := p.receive(); ok {
				t.Errorf("transfer %d of %s: got a block, want an error", maxTransfersPerAddress, address)
			}
		}
	}
	if !fetches(t, s, "127.0.0.100", content) {
		t.Error("another client: got no file")
	}
	for n, p := range peers {
		if got, want := p.next(), n != 0; got != want {
			t.Errorf("transfer %d: continues %t, want %t: only the oldest is displaced", n, got, want)
		}
	}
}

// Requests whose blocks nobody acknowledges, from one address or from many, keep nobody from being served as long as
// fewer than maxRunning transfers run, and end no transfer of a client that answers.
func TestTFTPFlood(t *testing.T) {
	content := bytes.Repeat([]byte("0123456789"), 1000)
	const flood = 2 * maxUnconfirmed
	for name, source := range map[string]func(int) string{
		"of one address":     func(int) string { return "127.0.1.1" },
		"of many addresses":  func(n int) string { return fmt.Sprintf("127.0.2.%d", n%256) },
		"of the own address": func(int) string { return "127.0.0.2" },
	} {
		t.Run(name, func(t *testing.T) {
			s := limitedTFTP(t, content)
			before, ok := confirmed(t, s, "127.0.0.2")
			if !ok {
				t.Fatal("first client: got an error")
			}
			for n := range flood {
				request(t, s, source(n)).receive() // a block or an error
			}
			if !fetches(t, s, "127.0.0.2", content) {
				t.Error("client after the flood: got no file")
			}
			if !before.next() {
				t.Error("transfer before the flood: got an error")
			}
		})
	}
}

// A transfer is confirmed only by what a client with a forged address cannot receive: a block after the longest first
// one. The end of a short file is none. A displaced transfer ends, and all that still run are limited.
func TestTransfers(t *testing.T) {
	client := func(n int) netip.Addr { return netip.AddrFrom4([4]byte{10, 0, byte(n >> 8), byte(n)}) }
	all := newTransfers()
	begin := func(n int) *blocks {
		t.Helper()
		transfer, err := all.begin(client(n))
		if err != nil {
			t.Fatal(err)
		}
		return &blocks{Reader: bytes.NewReader(make([]byte, tftpBlock+1)), transfers: all, transfer: transfer}
	}
	b := begin(0)
	for _, size := range []int{1000, tftpBlock - 1000} {
		if _, err := b.Read(make([]byte, size)); err != nil || len(all.confirmed.list) != 0 {
			t.Fatalf("first block: got %d confirmed, %v, want none", len(all.confirmed.list), err)
		}
	}
	if _, err := b.Read(make([]byte, 1)); err != nil || len(all.confirmed.list) != 1 {
		t.Fatalf("second block: got %d confirmed, %v, want one", len(all.confirmed.list), err)
	}
	short := begin(0)
	short.Reader = bytes.NewReader(make([]byte, tftpBlock-1))
	if _, err := io.ReadAll(short); err != nil || len(all.confirmed.list) != 1 {
		t.Fatalf("short file: got %d confirmed, %v, want one", len(all.confirmed.list), err)
	}
	for n := 1; all.running < maxRunning; n++ {
		begin(n)
	}
	if _, err := short.Read(make([]byte, 1)); !errors.Is(err, errDisplaced) {
		t.Errorf("displaced transfer: got %v, want %v", err, errDisplaced)
	}
	if _, err := all.begin(client(5000)); !errors.Is(err, errTooManyTransfers) {
		t.Errorf("with %d transfers: got %v, want %v", maxRunning, err, errTooManyTransfers)
	}
	all.end(short.transfer)
	begin(5000)
}

// tcpClient is a connection that a server repeats bytes on.
type tcpClient struct {
	t    *testing.T
	conn net.Conn
}

func dial(t *testing.T, address net.Addr, from string) *tcpClient {
	t.Helper()
	d := net.Dialer{LocalAddr: &net.TCPAddr{IP: net.ParseIP(from)}, Timeout: eventTimeout}
	conn, err := d.DialContext(t.Context(), "tcp4", address.String())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	if err := conn.SetDeadline(time.Now().Add(eventTimeout)); err != nil {
		t.Fatal(err)
	}
	return &tcpClient{t, conn}
}

func (c *tcpClient) send() {
	_, _ = c.conn.Write([]byte{7}) // the answer shows the result
}

// answered reports whether the connection is served. It returns false when the server has closed it.
func (c *tcpClient) answered() bool {
	c.t.Helper()
	n, err := c.conn.Read(make([]byte, 1))
	if timeout, ok := errors.AsType[net.Error](err); ok && timeout.Timeout() {
		c.t.Fatal(err)
	}
	return n == 1
}

// The limits of connections: of an address, in total by closing one of the address with the most, and by waiting if all
// have one.
func TestConnections(t *testing.T) {
	inner, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp4", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	l := limitConnections(inner, 4, 2, slog.New(slog.DiscardHandler))
	t.Cleanup(func() { _ = l.Close() })
	go func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			go func() {
				_, _ = io.Copy(conn, conn)
				_ = conn.Close()
			}()
		}
	}()
	const a, b, c, d, e = "127.0.0.2", "127.0.0.3", "127.0.0.4", "127.0.0.5", "127.0.0.6"
	served := func(from string, want bool) *tcpClient {
		t.Helper()
		client := dial(t, l.Addr(), from)
		client.send()
		if got := client.answered(); got != want {
			t.Fatalf("%s: served %t, want %t", from, got, want)
		}
		return client
	}
	first, second := served(a, true), served(a, true)
	served(a, false)
	third := served(b, true)
	fourth := served(b, true)
	served(c, true)
	if first.answered() {
		t.Error("oldest connection of the client with the most: not closed")
	}
	served(d, true)
	if third.answered() {
		t.Error("oldest connection of the client that then has the most: not closed")
	}
	served(c, false)
	waiting := dial(t, l.Addr(), e)
	waiting.send()
	for _, client := range []*tcpClient{second, fourth} {
		client.send()
		if !client.answered() {
			t.Error("only connection of a client: closed")
		}
	}
	_ = second.conn.Close()
	if !waiting.answered() {
		t.Error("waiting connection: closed")
	}
	dial(t, l.Addr(), a) // waits, and ends with the listener
}

// Clients that hold many connections do not keep others from being served.
func TestHTTPManyOfOneClient(t *testing.T) {
	h, err := ListenHTTP(t.Context(), FilesConfig{Listen: loopback, Root: directory(t, []byte("content"))})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := h.Close(); err != nil {
			t.Error(err)
		}
	})
	get := func(from string) (string, error) {
		t.Helper()
		c := dial(t, net.TCPAddrFromAddrPort(h.Addr()), from)
		if _, err := io.WriteString(c.conn, "GET /sub/file HTTP/1.1\r\nHost: server\r\n\r\n"); err != nil {
			return "", err
		}
		response, err := http.ReadResponse(bufio.NewReader(c.conn), nil)
		if err != nil {
			return "", err
		}
		body, err := io.ReadAll(response.Body)
		return string(body), errors.Join(err, response.Body.Close()) // the connection stays open
	}
	for client := range maxConnections / maxConnectionsPerAddress {
		address := fmt.Sprintf("127.0.0.%d", 2+client)
		for n := range maxConnectionsPerAddress {
			if got, err := get(address); err != nil || got != "content" {
				t.Fatalf("connection %d of %s: got %q, %v", n, address, got, err)
			}
		}
		if got, err := get(address); err == nil {
			t.Errorf("connection %d of %s: got %q, want an error", maxConnectionsPerAddress, address, got)
		}
	}
	if got, err := get("127.0.0.100"); err != nil || got != "content" {
		t.Errorf("another client: got %q, %v", got, err)
	}
}
