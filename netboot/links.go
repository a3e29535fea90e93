//go:build linux

package netboot

import (
	"cmp"
	"context"
	"maps"
	"slices"
	"sync"
)

// linkTable holds the links in use. It wakes the waiters for its own changes and for changes of the links' states,
// which the links report by wake. Its methods may be called concurrently.
type linkTable struct {
	mu      sync.Mutex
	byIndex map[int]*link // by kernel index
	changed chan struct{} // closed and replaced at every change
}

func newLinkTable() *linkTable {
	return &linkTable{byIndex: map[int]*link{}, changed: make(chan struct{})}
}

// add adds a link, or replaces the one with its index.
func (t *linkTable) add(l *link) { t.update(func() { t.byIndex[l.index] = l }) }

// remove removes the link with a kernel index.
func (t *linkTable) remove(index int) { t.update(func() { delete(t.byIndex, index) }) }

// clear removes all links.
func (t *linkTable) clear() { t.update(func() { clear(t.byIndex) }) }

// wake wakes the waiters after the state of a link changed.
func (t *linkTable) wake() { t.update(func() {}) }

func (t *linkTable) update(change func()) {
	t.mu.Lock()
	defer t.mu.Unlock()
	change()
	close(t.changed)
	t.changed = make(chan struct{})
}

// next returns a channel that is closed at the next change of the table or of a link.
func (t *linkTable) next() <-chan struct{} {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.changed
}

// all returns the links in the order of their kernel indices.
func (t *linkTable) all() []*link {
	t.mu.Lock()
	defer t.mu.Unlock()
	return slices.SortedFunc(maps.Values(t.byIndex), func(a, b *link) int { return cmp.Compare(a.index, b.index) })
}

// states returns the states of all links in the order of their kernel indices.
func (t *linkTable) states() []state {
	var states []state
	for _, l := range t.all() {
		states = append(states, l.State())
	}
	return states
}

// named returns the link with a name, or nil.
func (t *linkTable) named(name string) *link {
	for _, l := range t.all() {
		if l.name() == name {
			return l
		}
	}
	return nil
}

// await waits for the link with a name.
func (t *linkTable) await(ctx context.Context, name string) (*link, error) {
	for {
		changed := t.next()
		if l := t.named(name); l != nil {
			return l, nil
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
}
