//go:build linux

package boot

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"

	"ironroot/agent/status"
	"ironroot/uinit/kmod"
)

// fakeModules are modules that cannot be loaded, and the adapters without one.
type fakeModules struct {
	err      error
	adapters *[]kmod.Adapter
	loads    *[]string // the names that were to be loaded
}

func (f fakeModules) Load(_ context.Context, name string) error {
	*f.loads = append(*f.loads, name)
	return f.err
}

func (f fakeModules) Adapters(string) ([]kmod.Adapter, error) {
	if f.err != nil {
		return nil, f.err
	}
	return *f.adapters, nil
}

// links sends each channel that announces their next change.
type links chan chan struct{}

func (l links) Changed() <-chan struct{} {
	if l == nil {
		return nil
	}
	next := make(chan struct{})
	l <- next
	return next
}

// An adapter is listed once modules are loaded, until its driver is bound.
func TestFollowAdapters(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		settled, changes := make(chan struct{}), make(chan chan struct{}, 1)
		found := []kmod.Adapter{{Address: "0000:00:03.0", ID: "1011:0019", Missing: []string{"tulip"}}}
		var said bytes.Buffer
		board := status.NewBoard("1", nil)
		ended := make(chan error, 1)
		go func() {
			m := &Machine{
				Settled: settled, Log: slog.New(slog.NewTextHandler(&said, nil)),
				modules: fakeModules{adapters: &found},
			}
			ended <- followAdapters(ctx, m, links(changes), board)
		}()
		synctest.Wait()
		if got := board.State().Adapters; len(got) != 0 {
			t.Errorf("before modules are loaded: got %+v, want none", got)
		}
		close(settled)
		next := <-changes
		synctest.Wait()
		if got := board.State().Adapters; len(got) != 1 || got[0].ID != "1011:0019" || got[0].Missing[0] != "tulip" {
			t.Errorf("got %+v, want the adapter and its module", got)
		}
		close(next)
		next = <-changes
		synctest.Wait()
		if got := strings.Count(said.String(), "needs module tulip, which this image lacks"); got != 1 {
			t.Errorf("logged %d times, want once:\n%s", got, said.String())
		}
		found = nil
		close(next)
		<-changes
		synctest.Wait()
		if got := board.State().Adapters; len(got) != 0 {
			t.Errorf("after its driver came: got %+v, want none", got)
		}
		cancel()
		if err := <-ended; err != nil {
			t.Errorf("got %v, want no error at the end", err)
		}
	})
}

func TestFollowAdaptersFails(t *testing.T) {
	settled, want := make(chan struct{}), errors.New("no sysfs")
	close(settled)
	m := &Machine{Settled: settled, modules: fakeModules{err: want}}
	err := followAdapters(t.Context(), m, links(nil), nil)
	if !errors.Is(err, want) {
		t.Errorf("got %v, want %v", err, want)
	}
}
