package server

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"sync"
	"time"

	"github.com/insomniacslk/dhcp/dhcpv4"

	"ironroot/internal/goroutine"
)

// maxMessage is the size of the longest DHCP message that is received, in bytes. Longer ones are truncated.
const maxMessage = 4096

// readPause is the time for which a listener waits after an error of its socket, such as the error for an interface
// that is down.
const readPause = time.Second

// listener receives the DHCP messages of one interface.
type listener struct {
	conn  *net.UDPConn
	log   *slog.Logger
	name  string        // of the interface
	ended chan struct{} // nil until serve is called

	closeOnce sync.Once
	closeErr  error
}

// listen opens the socket, in the network namespace of the calling thread. serve starts the listener.
func listen(name string, port int, exclusive bool) (*listener, error) {
	conn, err := openSocket(name, port, exclusive)
	if err != nil {
		return nil, fmt.Errorf("%s: UDP port %d: %w", name, port, err)
	}
	return &listener{conn: conn, name: name}, nil
}

// closeConn closes the socket once. Each call returns when the socket is closed.
func (l *listener) closeConn() error {
	l.closeOnce.Do(func() {
		releasePort(l.conn, l.name)
		l.closeErr = l.conn.Close()
	})
	return l.closeErr
}

// serve calls handle with each message, one at a time, until ctx ends or close is called. A panic of handle ends the
// message only.
func (l *listener) serve(ctx context.Context, log *slog.Logger, handle func(*net.UDPAddr, *dhcpv4.DHCPv4)) {
	l.log, l.ended = log, make(chan struct{})
	stop := goroutine.AfterContext(ctx, func() { _ = l.closeConn() })
	goroutine.Go(func() error {
		l.receive(ctx, handle)
		return nil
	}, func(error) {
		stop()
		close(l.ended)
	})
}

func (l *listener) receive(ctx context.Context, handle func(*net.UDPAddr, *dhcpv4.DHCPv4)) {
	buffer := make([]byte, maxMessage)
	for {
		n, peer, err := l.conn.ReadFromUDP(buffer)
		if errors.Is(err, net.ErrClosed) {
			return
		}
		if err != nil {
			l.log.Error("dhcp message not received", "interface", l.name, "err", err)
			select {
			case <-time.After(readPause):
			case <-ctx.Done():
				return
			}
			continue
		}
		_ = goroutine.Catch(func() error { // a panic was logged
			m, err := dhcpv4.FromBytes(buffer[:n])
			if err == nil && m.OpCode == dhcpv4.OpcodeBootRequest && len(m.ClientHWAddr) > 0 {
				handle(peer, m)
			}
			return nil
		})
	}
}

// send sends a reply. A client without an address gets a broadcast.
func (l *listener) send(peer *net.UDPAddr, m, answer *dhcpv4.DHCPv4) {
	if peer.IP.IsUnspecified() {
		peer = &net.UDPAddr{IP: net.IPv4bcast, Port: peer.Port}
	}
	if _, err := l.conn.WriteToUDP(answer.ToBytes(), peer); err != nil {
		l.log.Warn("dhcp answer not sent", "interface", l.name, "mac", m.ClientHWAddr.String(), "err", err)
		return
	}
	l.log.Info("dhcp", "interface", l.name, "mac", m.ClientHWAddr.String(), "message", m.MessageType().String(),
		"answer", answer.MessageType().String(), "address", answer.YourIPAddr.String(), "file", bootFile(answer))
}

// close stops the listener and waits until its socket is closed.
func (l *listener) close() error {
	err := l.closeConn()
	if l.ended != nil {
		<-l.ended
	}
	return err
}
