package admission

import (
	"crypto"
	"crypto/tls"
	"io"
	"net"
	"slices"
)

// Handshakes returns TLS settings under which the handshakes of strangers use the private key one after the other. A
// signature is most of the work of a handshake, and trusted peers do not queue for it.
func Handshakes(settings *tls.Config) *tls.Config {
	limited := settings.Clone()
	turn := make(chan struct{}, 1)
	limited.GetConfigForClient = func(hello *tls.ClientHelloInfo) (*tls.Config, error) {
		c := unwrap(hello.Conn)
		if c == nil || c.listener.trusts(c) {
			return nil, nil // the settings as they are
		}
		own := settings.Clone()
		own.Certificates = slices.Clone(settings.Certificates)
		for i, certificate := range own.Certificates {
			own.Certificates[i].PrivateKey = queued(certificate.PrivateKey, queue{turn, c.gone})
		}
		return own, nil
	}
	return limited
}

// queue is the line for a private key.
type queue struct {
	turn chan struct{}
	gone <-chan struct{} // closed when there is no one to sign for
}

func (q queue) use(f func() ([]byte, error)) ([]byte, error) {
	select {
	case q.turn <- struct{}{}:
		defer func() { <-q.turn }()
	case <-q.gone:
		return nil, net.ErrClosed
	}
	select {
	case <-q.gone:
		return nil, net.ErrClosed
	default:
		return f()
	}
}

// queued returns a key whose use waits in the queue. A key of an unknown kind stays as it is.
func queued(key crypto.PrivateKey, q queue) crypto.PrivateKey {
	s, ok := key.(crypto.Signer)
	if !ok {
		return key
	}
	if d, ok := key.(crypto.Decrypter); ok {
		return decrypter{signer{s, q}, d}
	}
	return signer{s, q}
}

type signer struct {
	crypto.Signer
	queue queue
}

// Sign implements [crypto.Signer].
func (s signer) Sign(random io.Reader, digest []byte, options crypto.SignerOpts) ([]byte, error) {
	return s.queue.use(func() ([]byte, error) { return s.Signer.Sign(random, digest, options) })
}

// decrypter is an RSA key, which TLS 1.2 may also decrypt with.
type decrypter struct {
	signer
	key crypto.Decrypter
}

// Decrypt implements [crypto.Decrypter].
func (d decrypter) Decrypt(random io.Reader, message []byte, options crypto.DecrypterOpts) ([]byte, error) {
	return d.queue.use(func() ([]byte, error) { return d.key.Decrypt(random, message, options) })
}
