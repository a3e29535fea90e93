package clock

import (
	"context"
	"errors"
	"log/slog"
	"testing"
	"time"

	"ironroot/internal/goroutine"
	"ironroot/internal/test/testenv"
	"ironroot/netboot/sntp"
)

// A panic in the answer of a time server is an error of that server; the answer of another one is used.
func TestAskContainsPanics(t *testing.T) {
	testenv.ExpectPanics(t)
	log := slog.New(slog.DiscardHandler)
	broken, given := make(chan struct{}), time.Unix(1e9, 0)
	askOne := func(ctx context.Context, server string) (sntp.Answer, error) {
		if server == "broken" {
			defer close(broken)
			panic("in the answer")
		}
		<-broken
		return sntp.Answer{Time: given}, nil
	}
	answer, server, err := askAll(t.Context(), func() []string { return []string{"broken", "good"} },
		never, askOne, log)
	if err != nil || server != "good" || !answer.Time.Equal(given) {
		t.Errorf("got answer %+v of %q and %v, want that of the other server", answer, server, err)
	}
	broken = make(chan struct{})
	_, _, err = askAll(t.Context(), func() []string { return []string{"broken"} }, never, askOne, log)
	var caught *goroutine.PanicError
	if !errors.As(err, &caught) {
		t.Errorf("got error %v, want the panic", err)
	}
}
