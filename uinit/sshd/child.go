//go:build linux

package sshd

import (
	"crypto/x509"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"sync/atomic"
	"time"

	"golang.org/x/crypto/ssh"

	"ironroot/agent/api/admission"
	"ironroot/internal/goroutine"
	"ironroot/uinit/worker"
)

// childName is the name of this program in the server's process.
const childName = "sshd"

// listenerFile is the descriptor of the listener in the server's process.
const listenerFile = 3

// Child does the work of the server's process or of an SFTP session and ends, if this process was started as one.
// Otherwise it returns. Every program that calls Start must call it first.
func Child() {
	switch os.Args[0] {
	case childName:
		worker.Exit(serve())
	case sftpName:
		worker.Exit(serveFiles())
	}
}

// serve is the work of the server's process. It returns only after an error.
func serve() error {
	worker.CatchSignals()
	c := new(config)
	if err := worker.ReadInput(c); err != nil {
		return err
	}
	file := os.NewFile(listenerFile, "listener")
	listener, err := net.FileListener(file)
	if err := errors.Join(err, file.Close()); err != nil {
		return err
	}
	log := worker.Logger()
	slog.SetDefault(log) // of contained panics
	s := &server{config: c, log: log, limiter: newLimiter(c.Limits), turn: make(chan struct{}, 1)}
	if err := s.addHostKeys(); err != nil {
		return err
	}
	return s.accept(admission.New(listener, c.Limits.Connections, nil))
}

// server is the state of the server's process.
type server struct {
	*config
	log      *slog.Logger
	limiter  *limiter
	failures failures
	signers  []ssh.Signer
	turn     chan struct{} // has capacity for the check of one password: each takes memory and the processor
	sessions atomic.Int64  // of all connections
}

// addHostKeys parses the host keys.
func (s *server) addHostKeys() error {
	for _, encoded := range s.HostKeys {
		key, err := x509.ParsePKCS8PrivateKey(encoded)
		if err != nil {
			return errors.New("host key: not in PKCS #8") // err can contain parts of it
		}
		signer, err := ssh.NewSignerFromKey(key)
		if err != nil {
			return fmt.Errorf("host key: %w", err)
		}
		s.signers = append(s.signers, signer)
	}
	return nil
}

// acceptPause is the pause after a connection could not be accepted, for example for lack of descriptors.
const acceptPause = time.Second

// accept serves connections until the listener fails.
func (s *server) accept(listener net.Listener) error {
	for {
		raw, err := listener.Accept()
		if errors.Is(err, net.ErrClosed) {
			return err
		}
		if err != nil {
			s.log.Warn("connection not accepted", "err", err)
			time.Sleep(acceptPause)
			continue
		}
		goroutine.Go(func() error {
			defer raw.Close() //nolint:errcheck // the connection has ended
			s.connected(raw)
			return nil
		}, nil)
	}
}

// connected serves a connection until it ends.
func (s *server) connected(raw net.Conn) {
	c, err := newConnection(raw, s.Limits)
	if err != nil {
		return // it has ended
	}
	defer c.end()
	conn, channels, requests, err := ssh.NewServerConn(c, s.configOf(c))
	if err != nil {
		s.log.Debug("connection without login ended", "address", c.peer, "err", err)
		return
	}
	goroutine.Go(func() error {
		ssh.DiscardRequests(requests) // refuses port forwarding and all others
		return nil
	}, nil)
	user, _ := s.Accounts.Find(conn.User())
	for channel := range channels {
		if channel.ChannelType() != "session" {
			_ = channel.Reject(ssh.Prohibited, "only sessions are supported") // fails only if the connection has ended
			continue
		}
		goroutine.Go(func() error {
			s.open(c, user, channel)
			return nil
		}, nil)
	}
	s.log.Info("user logged out", "user", user.Name, "address", c.peer)
}
