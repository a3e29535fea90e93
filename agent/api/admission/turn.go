package admission

import (
	"slices"
	"sync"
	"time"
)

// maxTurn bounds a turn. net/http reads ahead while a request is answered, and then nobody processes what was read:
// without the bound, one more byte behind a request would keep the turn until the answer.
const maxTurn = 100 * time.Millisecond

// hold is one turn that a connection has. It is not empty, so that each has an address of its own.
type hold struct{ _ byte }

// turn lets one stranger at a time use the processor for what it sent. It goes to the peer that opened fewest
// connections lately, and of its kind to the one that waits for the shortest time: in a flood the others are closed
// before they could be answered.
type turn struct {
	mu      sync.Mutex
	taken   bool
	waiting []waiter // the latest last
}

type waiter struct {
	rank  int64         // of its peer
	given chan struct{} // closed when it has the turn
}

// take waits for the turn and reports whether it was given before gone was closed.
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
	if at < 0 { // it was given at the same time
		t.pass()
	}
	return false
}

// pass gives the turn to the next one.
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
