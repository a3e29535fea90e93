package tooz

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/netip"
	"strings"
	"sync"
	"time"

	"github.com/go-zookeeper/zk"

	"ironroot/internal/goroutine"
	"ironroot/internal/pause"
)

// maxReply limits the replies of a server, in bytes. It is the default of ZooKeeper itself.
const maxReply = 1 << 20

// errExpired is the cause of operations that end because the server has ended the session and deleted its nodes.
var errExpired = errors.New("session with ZooKeeper has expired")

// session is a session with ZooKeeper.
type session struct {
	conn *zk.Conn
	acl  []zk.ACL
	log  *slog.Logger

	ready   chan struct{} // is closed when the session is there
	expired chan struct{} // is closed when the session has expired
	once    struct{ ready, expired sync.Once }

	mu      sync.Mutex
	local   string // address of this machine
	lastErr error  // of an attempt to connect
	lost    *loss  // of the connection, nil while there is one
	closed  bool   // by this node
}

// loss is the loss of a connection.
type loss struct {
	server string // HOST:PORT
	since  time.Time
}

// Error implements error. The clock of the machine can be wrong, so that the text contains the time since then, too.
func (l *loss) Error() string {
	return fmt.Sprintf("connection to ZooKeeper %s was lost at %s, %v ago", l.server,
		l.since.UTC().Format(time.RFC3339), time.Since(l.since).Round(time.Second))
}

// connect waits for a session, and for the answer to the credentials if there are any, each for the session's time at
// most.
func connect(ctx context.Context, log *slog.Logger, b *Backend) (*session, error) {
	s := &session{
		acl: zk.WorldACL(zk.PermAll), log: log, ready: make(chan struct{}), expired: make(chan struct{}),
	}
	where := strings.Join(b.Hosts, ", ")
	var err error
	s.conn, _, err = zk.Connect(b.Hosts, b.session, zk.WithLogger(s), zk.WithLogInfo(false), zk.WithDialer(s.dial),
		zk.WithMaxBufferSize(maxReply), zk.WithEventCallback(s.event))
	if err != nil {
		return nil, fmt.Errorf("connect to ZooKeeper %s: %w", where, err)
	}
	limit := time.NewTimer(b.session)
	defer limit.Stop()
	select {
	case <-s.ready:
	case <-limit.C:
		s.close()
		s.mu.Lock()
		defer s.mu.Unlock()
		if s.lastErr == nil {
			s.lastErr = errors.New("no answer")
		}
		return nil, fmt.Errorf("connect to ZooKeeper %s: no session within %v: %w", where, b.session, s.lastErr)
	case <-ctx.Done():
		s.close()
		return nil, context.Cause(ctx)
	}
	if b.user != "" {
		credentials := []byte(b.user + ":" + b.password)
		limited, cancel := context.WithTimeoutCause(ctx, b.session, fmt.Errorf("no answer within %v", b.session))
		defer cancel()
		_, err := retry(limited, s, func() (any, error) { return nil, s.conn.AddAuth("digest", credentials) })
		if err != nil {
			s.close()
			return nil, fmt.Errorf("authenticate to ZooKeeper %s: %w", where, err)
		}
		s.acl = zk.DigestACL(zk.PermAll, b.user, b.password)
	}
	return s, nil
}

// close ends the session: the server deletes its nodes.
func (s *session) close() {
	s.mu.Lock()
	s.closed = true
	s.mu.Unlock()
	s.conn.Close()
}

// Printf implements [zk.Logger].
func (s *session) Printf(format string, args ...any) {
	s.log.Debug("ZooKeeper client", "message", fmt.Sprintf(format, args...))
}

// event is called for each event. It does not block.
func (s *session) event(e zk.Event) {
	switch e.State {
	case zk.StateHasSession:
		s.connected(e.Server)
		s.once.ready.Do(func() { close(s.ready) })
	case zk.StateDisconnected:
		s.disconnected(e.Server)
	case zk.StateExpired:
		s.once.expired.Do(func() { close(s.expired) })
	}
}

// connected notes that there is a connection again. The loss that has ended the session is kept.
func (s *session) connected(server string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.lost == nil || pause.Closed(s.expired) {
		return
	}
	s.log.Info("connected to ZooKeeper again", "server", server, "lost", s.lost.server,
		"duration", time.Since(s.lost.since).Round(time.Millisecond))
	s.lost = nil
}

// disconnected notes that the connection of the session was lost. Failures to connect again do not change that.
func (s *session) disconnected(server string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.lost != nil || s.closed || !pause.Closed(s.ready) || pause.Closed(s.expired) {
		return
	}
	s.lost = &loss{server, time.Now()}
	s.log.Warn("connection to ZooKeeper lost", "server", server)
}

// withLoss adds the loss of the connection to an error, if there is no connection.
func (s *session) withLoss(err error) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.lost == nil {
		return err
	}
	return fmt.Errorf("%w: %w", err, s.lost)
}

// dial connects to a server and remembers this machine's address.
func (s *session) dial(network, address string, timeout time.Duration) (net.Conn, error) {
	c, err := net.DialTimeout(network, address, timeout) //nolint:noctx // zk has no context
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.lastErr = err; err != nil {
		return nil, err
	}
	if local, err := netip.ParseAddrPort(c.LocalAddr().String()); err == nil {
		s.local = local.Addr().Unmap().WithZone("").String()
	}
	return c, nil
}

// localAddress returns the address from which this machine is connected.
func (s *session) localAddress() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.local
}

// call calls f, which calls the server. When ctx ends, the session is closed, which ends the call.
func call[T any](ctx context.Context, s *session, f func() (T, error)) (T, error) {
	stop := goroutine.AfterContext(ctx, s.close)
	defer stop()
	result, err := f()
	if ctx.Err() != nil {
		return result, context.Cause(ctx)
	}
	return result, err
}

// retry calls f, which calls the server, and again after the connection was lost: the client connects again within the
// session. The server may have carried out a request whose answer was lost, so f must be able to repeat it. A session
// that has expired is an error, although the client starts a new one: the nodes of this one are gone.
func retry[T any](ctx context.Context, s *session, f func() (T, error)) (T, error) {
	for lost := error(nil); ; {
		result, err := call(ctx, s, f)
		switch {
		case pause.Closed(s.expired):
			return result, s.withLoss(errExpired)
		case ctx.Err() != nil && lost != nil:
			return result, s.withLoss(fmt.Errorf("%w (%w)", err, lost))
		case ctx.Err() != nil:
			return result, s.withLoss(err)
		case !isLost(err):
			return result, err
		}
		lost = err // the next call waits for an attempt to connect
	}
}

// isLost reports whether an error of a request means that the connection was lost before the answer.
func isLost(err error) bool {
	var write *net.OpError // the request could not be sent
	return errors.Is(err, zk.ErrConnectionClosed) || errors.Is(err, zk.ErrNoServer) || errors.As(err, &write)
}

// watch calls f until it returns true or an error: first at once, then after each event of the channel that it returns,
// see retry. f only reads.
func (s *session) watch(ctx context.Context, f func() (bool, <-chan zk.Event, error)) error {
	for {
		var events <-chan zk.Event
		done, err := retry(ctx, s, func() (done bool, err error) {
			done, events, err = f()
			return done, err
		})
		if done || err != nil {
			return err
		}
		select {
		case e := <-events:
			if e.Err != nil {
				return s.withLoss(e.Err)
			}
		case <-s.expired:
			return s.withLoss(errExpired)
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

// timedOut returns the error of a wait of a limited duration. reason and state say what was waited for, and what the
// server has answered. Without a connection, they are those from before its loss.
func (s *session) timedOut(limit time.Duration, reason, state string) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.lost == nil {
		return fmt.Errorf("%s within %v: %s", reason, limit, state)
	}
	return fmt.Errorf("%w, and there was no other within the time limit of %v; before: %s: %s",
		s.lost, limit, reason, state)
}
