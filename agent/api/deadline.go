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
	headerTime = 10 * time.Second // for a request's header, and as much for the TLS handshake before it
	stallTime  = 30 * time.Second // without a byte of a body
	bodyTime   = 10 * time.Minute // for a whole body; a large config drive on a slow line takes minutes
	answerTime = 10 * time.Minute // to take the answer, which may be a large archive of logs
	idleTime   = 2 * time.Minute  // between two requests

	// Of requests without the token. The answer follows the body, so it has more time.
	strangerBodyTime   = 5 * time.Second
	strangerAnswerTime = 10 * time.Second
)

// limitBody limits the time that net/http spends on a body that no handler reads, such as that of a request without the
// token. net/http reads at most 256 KiB of it.
func limitBody(w http.ResponseWriter, r *http.Request, limit time.Duration) error {
	if r.Body == http.NoBody {
		return nil // a deadline would stop net/http from detecting a client that disconnects
	}
	return setDeadline(http.NewResponseController(w).SetReadDeadline, time.Now().Add(limit))
}

// patientBody reads a body as long as bytes keep coming. At its end there is no deadline any more.
type patientBody struct {
	body io.Reader
	conn *http.ResponseController
	end  time.Time
}

func newPatientBody(w http.ResponseWriter, body io.Reader) *patientBody {
	return &patientBody{body, http.NewResponseController(w), time.Now().Add(bodyTime)}
}

// Read implements [io.Reader].
func (b *patientBody) Read(p []byte) (int, error) {
	next := time.Now().Add(stallTime)
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

// setDeadline calls set and ignores connections without deadlines, such as those of tests.
func setDeadline(set func(time.Time) error, at time.Time) error {
	if err := set(at); !errors.Is(err, http.ErrNotSupported) {
		return err
	}
	return nil
}
