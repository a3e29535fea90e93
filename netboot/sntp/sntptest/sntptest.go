// Package sntptest provides a time server for tests, which can also send wrong replies.
package sntptest

import (
	"encoding/binary"
	"net"
	"sync"
	"testing"
	"time"

	"ironroot/internal/goroutine"
)

// Reply describes the replies of a server. The zero value means replies with this machine's time.
type Reply struct {
	Ahead       time.Duration // by how much the server's clock is ahead of this machine's
	At          time.Time     // the server's time, instead of one near this machine's
	Stratum     byte          // 0 means 2
	Kiss        string        // a kiss of death with this code of four letters
	Unsynced    bool          // leap indicator 3
	OtherOrigin bool          // the reply does not match the query
	Silent      bool          // no reply
	Lost        int           // number of the first queries that get no reply
}

// Server is a running time server.
type Server struct {
	conn net.PacketConn

	mu    sync.Mutex
	reply Reply
	asked int
}

// Start listens on an address, "127.0.0.1:0" for example, until the test ends.
func Start(t testing.TB, address string, reply Reply) *Server {
	t.Helper()
	conn, err := (&net.ListenConfig{}).ListenPacket(t.Context(), "udp", address)
	if err != nil {
		t.Fatal(err)
	}
	return Serve(t, conn, reply)
}

// Serve replies on a socket, which it closes when the test ends.
func Serve(t testing.TB, conn net.PacketConn, reply Reply) *Server {
	s := &Server{conn: conn, reply: reply}
	t.Cleanup(func() { _ = conn.Close() })
	goroutine.Go(func() error {
		s.run()
		return nil
	}, nil)
	return s
}

// Address returns the server's address and port.
func (s *Server) Address() string { return s.conn.LocalAddr().String() }

// Set changes the server's future replies.
func (s *Server) Set(reply Reply) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.reply = reply
}

// Asked returns the number of queries so far.
func (s *Server) Asked() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.asked
}

func (s *Server) run() {
	question := make([]byte, 512)
	for {
		n, client, err := s.conn.ReadFrom(question)
		if err != nil {
			return
		}
		s.mu.Lock()
		s.asked++
		reply, lost := s.reply, s.asked <= s.reply.Lost
		s.mu.Unlock()
		if n >= 48 && !reply.Silent && !lost {
			_, _ = s.conn.WriteTo(Answer([48]byte(question), reply), client)
		}
	}
}

// Answer returns the reply to a query (RFC 4330, section 4).
func Answer(question [48]byte, reply Reply) []byte {
	answer := make([]byte, 48)
	answer[0], answer[1] = 4<<3|4, 2 // version 4, mode server; stratum
	if reply.Unsynced {
		answer[0] |= 3 << 6
	}
	if reply.Stratum != 0 {
		answer[1] = reply.Stratum
	}
	if reply.Kiss != "" {
		answer[1] = 0
		copy(answer[12:16], reply.Kiss)
	}
	now := time.Now().Add(reply.Ahead)
	if !reply.At.IsZero() {
		now = reply.At
	}
	copy(answer[24:32], question[40:])
	if reply.OtherOrigin {
		answer[24] ^= 1
	}
	for _, offset := range []int{16, 32, 40} { // reference, receive, transmit
		binary.BigEndian.PutUint64(answer[offset:], stamp(now))
	}
	return answer
}

// stamp returns a timestamp: the lower 32 bits of the seconds since 1900, and a fraction.
func stamp(at time.Time) uint64 {
	const since1900 = 2208988800
	return uint64(at.Unix()+since1900)<<32 | uint64(at.Nanosecond())<<32/1e9
}
