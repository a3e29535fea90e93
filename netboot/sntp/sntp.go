// Package sntp asks a time server for the time: SNTP version 4 (RFC 4330) over UDP, as a client that asks once and
// believes the first answer that is one to its question. There is no authentication and no clock discipline; whether a
// time is plausible is the caller's to judge.
package sntp

import (
	"context"
	"crypto/rand"
	"encoding/binary"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"time"
)

const (
	port       = "123"
	packetSize = 48
	client     = 3 // mode of a question
	server     = 4 // mode of its answer
	// firstWait is the time after which a question is repeated; it doubles each time.
	firstWait = 500 * time.Millisecond
	// maxDistance is how far a server may say that it is from its own reference (RFC 5905, MAXDIST is less, MAXDISP this).
	maxDistance = 16 * time.Second
)

// Answer is a server's time.
type Answer struct {
	Time     time.Time // at the moment Received, half of the way there and back allowed for
	Received time.Time // by this machine's clock
}

// Now is the present time by the server's clock.
func (a Answer) Now() time.Time { return a.Time.Add(time.Since(a.Received)) }

// Offset is by how much this machine's clock is behind.
func (a Answer) Offset() time.Duration { return a.Time.Sub(a.Received) }

// Address splits the text that names a server into host and port: a name or an address, the port being 123 where none follows it.
func Address(text string) (host, service string) {
	if _, err := netip.ParseAddr(text); err == nil {
		return text, port
	}
	if host, service, err := net.SplitHostPort(text); err == nil && host != "" && service != "" {
		return host, service
	}
	return text, port
}

// Ask asks the server at a numeric address with port, and asks again where it is silent, until ctx ends. The error says
// what was wrong with the last answer, if there was any.
func Ask(ctx context.Context, address string) (Answer, error) {
	conn, err := (&net.Dialer{}).DialContext(ctx, "udp", address)
	if err != nil {
		return Answer{}, err
	}
	defer conn.Close() //nolint:errcheck // nothing is left to be sent
	defer context.AfterFunc(ctx, func() { _ = conn.Close() })()
	e := exchange{conn: conn}
	for wait := firstWait; ; wait *= 2 {
		answer, err := e.once(wait)
		var silent net.Error
		switch {
		case err == nil:
			return answer, nil
		case ctx.Err() != nil && e.odd != nil:
			return Answer{}, fmt.Errorf("time server %s: %w: %w", address, ctx.Err(), e.odd)
		case ctx.Err() != nil:
			return Answer{}, fmt.Errorf("time server %s: no answer: %w", address, ctx.Err())
		case !errors.As(err, &silent) || !silent.Timeout():
			return Answer{}, fmt.Errorf("time server %s: %w", address, err)
		}
	}
}

// exchange is a conversation with one server.
type exchange struct {
	conn net.Conn
	odd  error // what was wrong with the last packet that was passed over
}

// once sends one question and reads until its answer comes or wait is over. Packets that answer something else may be
// forged by somebody who cannot read the question: they are passed over.
func (e *exchange) once(wait time.Duration) (Answer, error) {
	var question [packetSize]byte
	question[0] = 4<<3 | client // version 4
	// The server repeats what stands here. A random number tells an answer to this question from all others, and tells
	// nobody this machine's time.
	_, _ = rand.Read(question[40:]) // never fails
	sent := time.Now()
	if err := e.conn.SetReadDeadline(sent.Add(wait)); err != nil {
		return Answer{}, err
	}
	if _, err := e.conn.Write(question[:]); err != nil {
		return Answer{}, err
	}
	data := make([]byte, 512)
	for {
		n, err := e.conn.Read(data)
		if err != nil {
			return Answer{}, err
		}
		received := time.Now()
		p, err := parse(data[:n])
		if err == nil && p.origin != [8]byte(question[40:]) {
			err = errors.New("its answer repeats another origin timestamp than the question's")
		}
		if err != nil {
			e.odd = err
			continue
		}
		if err := p.check(); err != nil {
			return Answer{}, err
		}
		way := max(0, received.Sub(sent)-p.transmit.Sub(p.receive)) / 2
		return Answer{Time: p.transmit.Add(way), Received: received}, nil
	}
}

// packet is a server's answer (RFC 4330, section 4).
type packet struct {
	leap, stratum     byte
	delay, dispersion time.Duration // to and of the server's reference
	reference         [4]byte
	origin            [8]byte // what the question had as its transmit timestamp
	receive, transmit time.Time
}

func parse(data []byte) (packet, error) {
	if len(data) < packetSize {
		return packet{}, fmt.Errorf("its answer has %d bytes, want %d", len(data), packetSize)
	}
	if version, mode := data[0]>>3&7, data[0]&7; version < 1 || version > 4 || mode != server {
		return packet{}, fmt.Errorf("its answer has version %d and mode %d, want at most 4 and %d", version, mode, server)
	}
	return packet{
		leap: data[0] >> 6, stratum: data[1], delay: short(data[4:]), dispersion: short(data[8:]), reference: [4]byte(data[12:]),
		origin: [8]byte(data[24:]), receive: stamp(data[32:]), transmit: stamp(data[40:]),
	}, nil
}

// check tells whether the server calls its own time good.
func (p packet) check() error {
	switch {
	case p.stratum == 0:
		return fmt.Errorf("its answer is a kiss of death, code %q", p.reference)
	case p.stratum > 15:
		return fmt.Errorf("it is not synchronised: stratum %d", p.stratum)
	case p.leap == 3:
		return errors.New("it is not synchronised: leap indicator 3")
	case p.transmit.IsZero() || p.receive.IsZero() || p.transmit.Before(p.receive):
		return fmt.Errorf("its answer has the times %v and %v, want the second one to be later", p.receive, p.transmit)
	case p.delay/2+p.dispersion > maxDistance:
		return fmt.Errorf("it is %v away from its reference, want %v at most", p.delay/2+p.dispersion, maxDistance)
	}
	return nil
}

// stamp reads a timestamp; the zero one means unknown. Where the highest bit is set it counts from 1900, else from 7
// February 2036 (RFC 4330, section 3), so that it means a time between 1968 and 2104.
func stamp(data []byte) time.Time {
	const since1900, era = 2208988800, 1 << 32
	seconds, fraction := int64(binary.BigEndian.Uint32(data)), int64(binary.BigEndian.Uint32(data[4:]))
	if seconds == 0 && fraction == 0 {
		return time.Time{}
	}
	if seconds < 1<<31 {
		seconds += era
	}
	return time.Unix(seconds-since1900, fraction*int64(time.Second)>>32).UTC()
}

// short reads a number of seconds with 16 bits behind the point.
func short(data []byte) time.Duration {
	return time.Duration(int64(binary.BigEndian.Uint32(data)) * int64(time.Second) >> 16)
}
