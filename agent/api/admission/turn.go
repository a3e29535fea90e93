package admission

import (
	"slices"
	"sync"
	"time"
)

// maxTurn limits a turn. net/http reads ahead while a handler runs, without processing what it read: without the
// limit, a byte after a request would keep the turn until the response.
const maxTurn = 100 * time.Millisecond

// hold represents one turn of a connection. It is not empty, so that each has a distinct address.
type hold struct{ _ byte }

// turn allows one untrusted connection at a time to have its data processed. Next is the peer that recently opened the
// fewest connections, and among equals the one that has waited for the shortest time: in a flood the others are closed
// before they can be answered.
type turn struct {
	mu      sync.Mutex
	taken   bool
	waiting []waiter // the latest last
}

type waiter struct {
	rank  int64         // of its peer
	given chan struct{} // closed when it gets the turn
}

// take waits for the turn and reports whether it got it before gone was closed.
func (t *turn) take(rank int64, gone <-chan struct{}) bool {
	t.mu.Lock()
	if !t.taken {
		t.taken = true
		t.mu.Unlock()
		return true
	}
	given := make(chan struct{})
	t.waiting = append(t.waiting, waiter{rank, given})
	t.mu.Unlock()
	select {
	case <-given:
		return true
	case <-gone:
	}
	t.mu.Lock()
	at := slices.IndexFunc(t.waiting, func(w waiter) bool { return w.given == given })
	if at >= 0 {
		t.waiting = slices.Delete(t.waiting, at, at+1)
	}
	t.mu.Unlock()
	if at < 0 { // the turn was given concurrently
		t.pass()
	}
	return false
}

// pass gives the turn to the next waiter.
func (t *turn) pass() {
	t.mu.Lock()
	defer t.mu.Unlock()
	if len(t.waiting) == 0 {
		t.taken = false
		return
	}
	next := 0
	for i, w := range t.waiting {
		if w.rank <= t.waiting[next].rank {
			next = i
		}
	}
	close(t.waiting[next].given)
	t.waiting = slices.Delete(t.waiting, next, next+1)
}
