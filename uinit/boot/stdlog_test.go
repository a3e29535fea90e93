//go:build linux

package boot

import (
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"
)

// lines is a log that signals each line.
type lines struct {
	mu   sync.Mutex
	text strings.Builder
	more chan struct{}
}

func (l *lines) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	defer func() { l.more <- struct{}{} }()
	return l.text.Write(p)
}

// net/http logs what a server sends after its answer; the content is removed from the line.
func TestUnsolicitedContentIsNotLogged(t *testing.T) {
	got := &lines{more: make(chan struct{}, 8)}
	before, flags := log.Writer(), log.Flags()
	t.Cleanup(func() {
		log.SetOutput(before)
		log.SetFlags(flags)
	})
	log.SetFlags(0)
	log.SetOutput(unquoted{got})
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		conn, _, err := w.(http.Hijacker).Hijack()
		if err != nil {
			t.Error(err)
			return
		}
		defer conn.Close() //nolint:errcheck // the client reads what arrived
		if _, err := io.WriteString(conn, "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nokpl4nted"); err != nil {
			t.Error(err)
		}
	}))
	t.Cleanup(server.Close)
	answer, err := server.Client().Get(server.URL)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := io.Copy(io.Discard, answer.Body); err != nil {
		t.Fatal(err)
	}
	answer.Body.Close() //nolint:errcheck // only read
	select {
	case <-got.more:
	case <-time.After(time.Minute):
		t.Fatal("nothing was logged")
	}
	log.Print("another line")
	<-got.more
	got.mu.Lock()
	defer got.mu.Unlock()
	if want := unsolicited + "\nanother line\n"; got.text.String() != want {
		t.Errorf("got the log %q, want %q", got.text.String(), want)
	}
}
