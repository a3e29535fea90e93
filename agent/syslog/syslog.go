// Package syslog sends the agent's log to a syslog server: messages of RFC 5424, over UDP (RFC 5426), over TCP with
// octet counting (RFC 6587), or over TLS (RFC 5425).
package syslog

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"regexp"
	"syscall"
	"time"
	"unicode/utf8"

	"ironroot/agent/journal"
	"ironroot/internal/hostname"
	"ironroot/internal/pause"
)

// Pending limits the lines that wait for the server, in bytes.
const Pending = 1 << 20

const (
	dialTimeout  = 10 * time.Second
	writeTimeout = 10 * time.Second
	firstPause   = time.Second
	longestPause = time.Minute
)

// Options are the options of Run.
type Options struct {
	Transport string      // "udp", "tcp" or "tls"
	Address   string      // host and port of the server
	TLS       *tls.Config // for tls
	Dialer    Dialer
	Machine   Machine
	Lines     *journal.Lines
	Log       *slog.Logger
}

// Dialer connects to servers: see [net.Dialer].
type Dialer interface {
	DialContext(ctx context.Context, network, address string) (net.Conn, error)
}

// Machine is the machine that sends the log.
type Machine interface {
	Hostname() string // "" is unknown
}

// Run sends all lines until ctx ends. While the server cannot be reached, it tries again at growing intervals, and the
// lines wait; the server is told how many were dropped. Over TCP and TLS, lines that were sent immediately before a
// connection broke can be lost. Over UDP, lines are sent once: nothing confirms them.
func Run(ctx context.Context, o Options) {
	s := &sender{Options: o}
	defer s.close()
	for {
		line, dropped, err := o.Lines.Next(ctx)
		if err != nil {
			return
		}
		if dropped > 0 {
			text := fmt.Sprintf("%d lines dropped", dropped)
			s.send(ctx, journal.Line{Time: line.Time, Level: slog.LevelWarn, Text: text})
		}
		s.send(ctx, line)
	}
}

// sender is the connection to a server.
type sender struct {
	Options

	conn   net.Conn // nil without one
	failed bool     // the server could not be reached, which was logged
}

func (s *sender) close() {
	if s.conn != nil {
		_ = s.conn.Close() // nothing can be done about it
		s.conn = nil
	}
}

// send sends a line, again and again until that succeeds or ctx ends; over UDP, until there is a route to the server.
func (s *sender) send(ctx context.Context, line journal.Line) {
	wait := firstPause
	for {
		err := s.try(ctx, line)
		if err == nil || errors.Is(err, errUnanswered) {
			if s.failed {
				s.failed = false
				s.Log.Info("syslog server reached", "server", s.Address)
			}
			return
		}
		s.close()
		if ctx.Err() != nil {
			return
		}
		if !s.failed {
			s.failed = true
			s.Log.Warn("syslog server not reached, retrying", "server", s.Address, "err", err)
		}
		if pause.For(ctx, wait) != nil {
			return
		}
		wait = min(2*wait, longestPause)
	}
}

func (s *sender) try(ctx context.Context, line journal.Line) error {
	if s.conn == nil {
		if err := s.connect(ctx); err != nil {
			return err
		}
	}
	message := format(line, s.Machine.Hostname(), maxMessage[s.Transport])
	if s.Transport != "udp" {
		message = fmt.Sprintf("%d %s", len(message), message)
	}
	err := errors.Join(s.conn.SetWriteDeadline(time.Now().Add(writeTimeout)), write(s.conn, message))
	if errors.Is(err, syscall.ECONNREFUSED) && s.Transport == "udp" {
		return errUnanswered
	}
	return err
}

// errUnanswered is the error about a host that has rejected an earlier datagram because no server runs. A message about
// it would be rejected, too.
var errUnanswered = errors.New("no syslog server on the host")

func write(conn net.Conn, message string) error {
	_, err := conn.Write([]byte(message))
	return err
}

func (s *sender) connect(ctx context.Context) error {
	limited, cancel := context.WithTimeout(ctx, dialTimeout)
	defer cancel()
	network := "tcp"
	if s.Transport == "udp" {
		network = "udp"
	}
	conn, err := s.Dialer.DialContext(limited, network, s.Address)
	if err != nil {
		return err
	}
	if s.Transport != "tls" {
		s.conn = conn
		return nil
	}
	settings := s.TLS.Clone()
	host, _, _ := net.SplitHostPort(s.Address) // Dial has checked it
	settings.ServerName = hostname.WithoutZone(host)
	secure := tls.Client(conn, settings)
	if err := secure.HandshakeContext(limited); err != nil {
		return errors.Join(err, conn.Close())
	}
	s.conn = secure
	return nil
}

// maxMessage limits the bytes of a message: those that receivers should accept over UDP (RFC 5426, section 3.2) and
// over TLS (RFC 5425, section 4.3.1).
var maxMessage = map[string]int{"udp": 2048, "tcp": 8192, "tls": 8192}

// facility is the facility "system daemons".
const facility = 3

// severity returns the severity of a level.
func severity(level slog.Level) int {
	switch {
	case level >= slog.LevelError:
		return 3
	case level >= slog.LevelWarn:
		return 4
	case level >= slog.LevelInfo:
		return 6
	}
	return 7
}

// validHost matches what the host name of a message can be.
var validHost = regexp.MustCompile(`^[!-~]{1,255}$`)

// format returns a message of at most limit bytes. An unknown host name is "-".
func format(line journal.Line, host string, limit int) string {
	timestamp := "-"
	if !line.Time.IsZero() {
		timestamp = line.Time.UTC().Format("2006-01-02T15:04:05.000000Z")
	}
	if !validHost.MatchString(host) {
		host = "-"
	}
	priority := facility<<3 | severity(line.Level)
	message := fmt.Sprintf("<%d>1 %s %s ironroot - - - %s", priority, timestamp, host, line.Text)
	if len(message) <= limit {
		return message
	}
	cut := limit
	for cut > 0 && !utf8.RuneStart(message[cut]) {
		cut--
	}
	return message[:cut]
}
