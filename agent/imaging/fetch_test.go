package imaging

import (
	"io"
	"net/http"
	"net/http/httptest"
	"testing"

	"ironroot/agent/config"
)

// A server that offers HTTP/2 is spoken to by HTTP/1.1 all the same: it is faster for one large body.
func TestImagesComeByHTTP1(t *testing.T) {
	server := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.WriteString(w, r.Proto)
	}))
	server.EnableHTTP2 = true
	server.StartTLS()
	defer server.Close()
	i := newImager(t, nil)
	i.o.Config.Update(func(c *config.Config) { c.Insecure = true })
	client, err := i.client(ImageInfo{})
	if err != nil {
		t.Fatal(err)
	}
	defer client.CloseIdleConnections()
	answer, err := client.Get(server.URL)
	if err != nil {
		t.Fatal(err)
	}
	defer answer.Body.Close() //nolint:errcheck // only read
	if got, err := io.ReadAll(answer.Body); err != nil || string(got) != "HTTP/1.1" {
		t.Errorf("got %s and %v, want HTTP/1.1", got, err)
	}
}
