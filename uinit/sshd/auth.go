//go:build linux

package sshd

import (
	"context"
	"errors"
	"net"
	"net/netip"
	"sync"
	"time"

	"golang.org/x/crypto/ssh"

	"ironroot/agent/api/admission"
	"ironroot/internal/goroutine"
	"ironroot/internal/pause"
)

// connection is a connection of a client. It has a context, which ends with it.
type connection struct {
	net.Conn
	context.Context
	cancel context.CancelFunc
	peer   netip.Addr
	limits limits

	mu       sync.Mutex
	user     string      // "" before a login
	sessions int         // that are open
	idle     *time.Timer // closes a connection without sessions; nil before a login
}

// newConnection limits the time until a login.
func newConnection(raw net.Conn, l limits) (*connection, error) {
	c := &connection{Conn: raw, limits: l}
	if address, ok := raw.RemoteAddr().(*net.TCPAddr); ok {
		c.peer = address.AddrPort().Addr().Unmap()
	}
	if err := raw.SetDeadline(time.Now().Add(l.Login)); err != nil {
		return nil, err
	}
	c.Context, c.cancel = context.WithCancel(context.Background())
	return c, nil
}

// NetConn returns the connection below, for package admission.
func (c *connection) NetConn() net.Conn { return c.Conn }

// Read implements [net.Conn]. It is always called until it fails, also while a password is checked.
func (c *connection) Read(p []byte) (int, error) {
	n, err := c.Conn.Read(p)
	if err != nil {
		c.cancel()
	}
	return n, err
}

// end ends the context, and closes the connection.
func (c *connection) end() {
	c.cancel()
	_ = c.Close() // it has ended
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.idle != nil {
		c.idle.Stop()
	}
}

// configOf returns the options of a connection. A client can change the user between two attempts to log in, so each
// attempt is checked for the user that it names.
func (s *server) configOf(c *connection) *ssh.ServerConfig {
	const maxTries = 6 // as OpenSSH; each key that a client offers is one
	options := &ssh.ServerConfig{
		ServerVersion: "SSH-2.0-ironroot",
		MaxAuthTries:  maxTries,
		// The defaults include signatures with SHA-1.
		PublicKeyAuthAlgorithms: ssh.SupportedAlgorithms().PublicKeyAuths,
		AuthLogCallback: func(meta ssh.ConnMetadata, method string, err error) {
			s.attempted(c, meta.User(), method, err)
		},
	}
	if s.Accounts.HasPasswords() {
		options.PasswordCallback = func(meta ssh.ConnMetadata, given []byte) (*ssh.Permissions, error) {
			return nil, s.checkPassword(c, meta.User(), given)
		}
	}
	if s.Accounts.HasKeys() {
		options.PublicKeyCallback = func(meta ssh.ConnMetadata, key ssh.PublicKey) (*ssh.Permissions, error) {
			if !s.Accounts.HasKey(meta.User(), key.Marshal()) {
				return nil, errDenied
			}
			return nil, nil // the library checks whether the client has the private key
		}
	}
	for _, signer := range s.signers {
		options.AddHostKey(signer)
	}
	return options
}

// attempted is called after each attempt of a client to authenticate.
func (s *server) attempted(c *connection, user, method string, err error) {
	switch {
	case err == nil:
		c.loggedIn(user)
		s.log.Info("user logged in", "user", user, "address", c.peer, "method", method)
	case method == "password":
		if count, show := s.failures.add(time.Now()); show {
			s.log.Warn("login failed", "user", s.known(user), "address", c.peer, "method", method, "count", count)
		}
	case method == "publickey": // a client offers all its keys
		s.log.Debug("key not accepted", "user", s.known(user), "address", c.peer)
	}
}

// known returns the name of a user. Other names are not logged: they can be passwords.
func (s *server) known(user string) string {
	if _, ok := s.Accounts.Find(user); !ok {
		return "(unknown)"
	}
	return user
}

// loggedIn frees the connection from the limits of those without a login.
func (c *connection) loggedIn(user string) {
	_ = c.SetDeadline(time.Time{}) // fails only if it is closed
	admission.SetBusy(c, true)     // it is not closed in favour of another
	admission.Authenticate(admission.WithConn(context.Background(), c))
	c.mu.Lock()
	defer c.mu.Unlock()
	c.user = user
	c.idle = goroutine.AfterTime(c.limits.Idle, c.closeIdle)
}

// closeIdle closes the connection if it has no session.
func (c *connection) closeIdle() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.sessions == 0 {
		_ = c.Close() // nobody uses it
	}
}

// begin counts a session. It returns false if there are too many.
func (c *connection) begin() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.user == "" || c.sessions >= c.limits.PerConn {
		return false
	}
	c.sessions++
	c.idle.Stop()
	return true
}

// done counts a session less.
func (c *connection) done() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.sessions--; c.sessions == 0 {
		c.idle.Reset(c.limits.Idle)
	}
}

// errDenied is the error of a login that is refused.
var errDenied = errors.New("permission denied")

// checkPassword returns an error unless the user has this password. It waits for the client's turn first.
func (s *server) checkPassword(c *connection, user string, given []byte) error {
	wait, ok := s.limiter.reserve(c.peer, time.Now())
	if !ok {
		_ = c.Close() // a reply would say that the password is wrong
		return errDenied
	}
	if err := pause.For(c, wait); err != nil {
		s.limiter.cancel(c.peer)
		return err
	}
	select {
	case s.turn <- struct{}{}:
		defer func() { <-s.turn }()
	case <-c.Done():
		s.limiter.cancel(c.peer)
		return c.Err()
	}
	if !s.Accounts.MatchesPassword(user, given) {
		return errDenied
	}
	s.limiter.cancel(c.peer)
	return nil
}

// failures counts failed logins. It is safe for concurrent use.
type failures struct {
	mu    sync.Mutex
	count int
	shown time.Time
}

// add counts a failure. The first ones are shown, and others if none was shown for a while, so that guesses do not fill
// the log.
func (f *failures) add(now time.Time) (count int, show bool) {
	const first, least = 10, 10 * time.Second
	f.mu.Lock()
	defer f.mu.Unlock()
	f.count++
	if f.count > first && now.Sub(f.shown) < least {
		return f.count, false
	}
	f.shown = now
	return f.count, true
}
