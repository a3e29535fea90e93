//go:build linux

package sshd

import (
	"context"
	"crypto"
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"

	"golang.org/x/crypto/ssh"

	"ironroot/internal/goroutine"
	"ironroot/uinit/account"
	"ironroot/uinit/worker"
)

// defaultAddress is the address at which the server listens, with IPv4 and IPv6.
const defaultAddress = ":22"

// Options are the options of a server.
type Options struct {
	Accounts account.List // must contain a password or a key
	Address  string       // host and port to listen on; "" = port 22 of all addresses
	Log      *slog.Logger
}

// Server is a running SSH server.
type Server struct {
	address      net.Addr
	fingerprints []string
	cancel       context.CancelFunc
	ended        chan struct{}
	err          error // set before ended is closed
}

// config is the input of the server's process. It contains secrets.
type config struct {
	Accounts account.List
	HostKeys [][]byte // PKCS #8
	Limits   limits
}

// Check implements [worker.Input].
func (c *config) Check() error { return c.Accounts.Check() }

// Start starts a server and returns when it listens. The server is started again whenever it ends, with the same host
// keys, until ctx ends or Stop is called.
func Start(ctx context.Context, o Options) (*Server, error) {
	return start(ctx, o, defaultLimits)
}

func start(ctx context.Context, o Options, l limits) (*Server, error) {
	if err := o.Accounts.Check(); err != nil {
		return nil, fmt.Errorf("start SSH server: %w", err)
	}
	if !o.Accounts.HasPasswords() && !o.Accounts.HasKeys() {
		return nil, errors.New("start SSH server: nobody can log in: no account has a password or key")
	}
	keys, fingerprints, err := newHostKeys()
	if err != nil {
		return nil, fmt.Errorf("start SSH server: host keys: %w", err)
	}
	input, err := json.Marshal(config{Accounts: o.Accounts, HostKeys: keys, Limits: l})
	if err != nil {
		return nil, fmt.Errorf("start SSH server: %w", err)
	}
	if o.Address == "" {
		o.Address = defaultAddress
	}
	listener, file, err := listen(ctx, o.Address)
	if err != nil {
		return nil, fmt.Errorf("start SSH server: %w", err)
	}
	s := &Server{address: listener.Addr(), fingerprints: fingerprints, ended: make(chan struct{})}
	ctx, s.cancel = context.WithCancel(ctx)
	goroutine.Go(func() error {
		return worker.Keep(ctx, worker.Spec{Name: childName, Input: input, Files: []*os.File{file}, Log: o.Log})
	}, func(err error) {
		s.err = errors.Join(err, listener.Close(), file.Close())
		close(s.ended)
	})
	o.Log.Info("SSH server started", "address", s.address, "host_keys", fingerprints)
	return s, nil
}

// listen returns a listener and its descriptor for the server's process. Process 1 keeps the socket, so that a client
// that connects while the process is started again waits.
func listen(ctx context.Context, address string) (net.Listener, *os.File, error) {
	listener, err := new(net.ListenConfig).Listen(ctx, "tcp", address)
	if err != nil {
		return nil, nil, err
	}
	file, err := listener.(*net.TCPListener).File()
	if err != nil {
		return nil, nil, errors.Join(err, listener.Close())
	}
	return listener, file, nil
}

// newHostKeys generates a key for each kind of client: Ed25519, and ECDSA with P-256 for those that lack it. It returns
// the private keys as PKCS #8, and type and SHA-256 fingerprint of the public keys as ssh(1) shows them.
func newHostKeys() (keys [][]byte, fingerprints []string, err error) {
	_, edwards, err := ed25519.GenerateKey(rand.Reader)
	if err != nil {
		return nil, nil, err
	}
	nist, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, nil, err
	}
	for _, key := range []crypto.Signer{edwards, nist} {
		encoded, err := x509.MarshalPKCS8PrivateKey(key)
		if err != nil {
			return nil, nil, err
		}
		public, err := ssh.NewPublicKey(key.Public())
		if err != nil {
			return nil, nil, err
		}
		keys = append(keys, encoded)
		fingerprints = append(fingerprints, public.Type()+" "+ssh.FingerprintSHA256(public))
	}
	return keys, fingerprints, nil
}

// Fingerprints returns a line for each host key: its type and SHA-256 fingerprint.
func (s *Server) Fingerprints() []string { return s.fingerprints }

// Stop closes the port, and ends the server with all its sessions and everything that users have started in them. If
// the kernel does not end a process, the error wraps confine.ErrStillRunning.
func (s *Server) Stop() error {
	s.cancel()
	<-s.ended
	return s.err
}
