//go:build linux

package boot

import (
	"context"
	"errors"
	"log/slog"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"

	"ironroot/netboot/dhcp4"
	"ironroot/netboot/snapshot"
)

// leases is a network whose links a test sets.
type leases struct {
	mu      sync.Mutex
	links   []snapshot.Link
	changed chan struct{}
}

func (l *leases) Changed() <-chan struct{} {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.changed
}

func (l *leases) Links() []snapshot.Link {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.links
}

func (l *leases) set(names ...string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.links = nil
	for _, name := range names {
		link := snapshot.Link{}
		if name != "" {
			link.Lease = &dhcp4.Lease{Hostname: name}
		}
		l.links = append(l.links, link)
	}
	close(l.changed)
	l.changed = make(chan struct{})
}

func TestFollowHostname(t *testing.T) {
	n := &leases{changed: make(chan struct{})}
	names, ended := make(chan string), make(chan struct{})
	ctx, cancel := context.WithCancel(t.Context())
	go func() {
		defer close(ended)
		followHostname(ctx, n, func(name string) error {
			names <- name
			return errors.New("refused") // which does not end it
		}, slog.New(slog.DiscardHandler))
	}()
	var got []string
	for _, step := range [][]string{{"", "node-1"}, {"node-0", "node-1"}, {"node-2", "node-1"}} {
		n.set(step...)
		got = append(got, <-names)
	}
	n.set("", "") // a lost lease keeps the name
	cancel()
	<-ended
	if diff := cmp.Diff([]string{"node-1", "node-0", "node-2"}, got); diff != "" {
		t.Error(diff)
	}
}
