package api

import (
	"errors"
	"io"
	"net/http"
	"time"
)

// Timeouts of a connection. The time between the end of a request and the start of its response is not limited: the
// command determines it.
const (
	headerTimeout   = 10 * time.Second // for a request's header, and again for the TLS handshake before it
	stallTimeout    = 30 * time.Second // between two reads of a body
	bodyTimeout     = 10 * time.Minute // for a whole body; a large config drive can take minutes
	responseTimeout = 10 * time.Minute // for the client to read the response, which can be a large log archive
	idleTimeout     = 2 * time.Minute  // between two requests

	// For requests without the token. The response follows the body, so its timeout is longer.
	unauthorizedBodyTimeout     = 5 * time.Second
	unauthorizedResponseTimeout = 10 * time.Second
)

// limitBody limits the time that net/http spends on a body that no handler reads, for example if the request has no
// token. net/http reads at most 256 KiB of it.
func limitBody(w http.ResponseWriter, r *http.Request, limit time.Duration) error {
	if r.Body == http.NoBody {
		return nil // a deadline would stop net/http from detecting a client that disconnects
	}
	return setDeadline(http.NewResponseController(w).SetReadDeadline, time.Now().Add(limit))
}

// deadlineReader reads a body. Each read extends the connection's deadline by stallTimeout, up to bodyTimeout in total.
// EOF clears the deadline.
type deadlineReader struct {
	body io.Reader
	conn *http.ResponseController
	end  time.Time
}

func newDeadlineReader(w http.ResponseWriter, body io.Reader) *deadlineReader {
	return &deadlineReader{body, http.NewResponseController(w), time.Now().Add(bodyTimeout)}
}

// Read implements [io.Reader].
func (b *deadlineReader) Read(p []byte) (int, error) {
	next := time.Now().Add(stallTimeout)
	if b.end.Before(next) {
		next = b.end
	}
	if err := setDeadline(b.conn.SetReadDeadline, next); err != nil {
		return 0, err
	}
	n, err := b.body.Read(p)
	if errors.Is(err, io.EOF) {
		if clear := setDeadline(b.conn.SetReadDeadline, time.Time{}); clear != nil {
			err = clear
		}
	}
	return n, err
}

// setDeadline calls set and ignores connections without deadlines, as in tests.
func setDeadline(set func(time.Time) error, at time.Time) error {
	if err := set(at); !errors.Is(err, http.ErrNotSupported) {
		return err
	}
	return nil
}
