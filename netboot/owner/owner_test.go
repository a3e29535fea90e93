package owner

import (
	"errors"
	"testing"

	"ironroot/internal/goroutine"
	"ironroot/internal/test/testenv"
)

// Changes that are requested concurrently are made one at a time. Each one is published before its waiters are woken,
// and before Change returns.
func TestOwner(t *testing.T) {
	const changes = 100
	var o *Owner[int]
	woken := 0 // by the owner's goroutine only
	o = Start(0, func() {
		woken++
		if got := o.State(); got != woken {
			t.Errorf("change %d: got %d when the waiters are woken", woken, got)
		}
	})
	group := goroutine.NewGroup()
	for range changes {
		group.Go(func() error {
			var mine int
			o.Change(func(n *int) {
				*n++
				mine = *n
			})
			if got := o.State(); got < mine {
				t.Errorf("got state %d after change %d returned", got, mine)
			}
			return nil
		})
	}
	if err := group.Wait(); err != nil {
		t.Fatal(err)
	}
	o.End()
	if got := o.State(); got != changes || woken != changes {
		t.Errorf("got state %d, waiters woken %d times, want %d", got, woken, changes)
	}
}

// A panic while waiters are woken reaches the one who requested the change, and later changes are made.
func TestContainsPanicsOfWake(t *testing.T) {
	testenv.ExpectPanics(t)
	fail := true
	o := Start(0, func() {
		if fail {
			panic("in wake")
		}
	})
	defer o.End()
	var caught *goroutine.PanicError
	err := goroutine.Catch(func() error {
		o.Change(func(n *int) { *n = 1 })
		return nil
	})
	if !errors.As(err, &caught) {
		t.Errorf("got %v, want the panic", err)
	}
	fail = false
	o.Change(func(n *int) { *n++ })
	if got := o.State(); got != 2 {
		t.Errorf("got state %d, want 2", got)
	}
}

// A panic of a change reaches the one who requested it. The change has no effect, and the owner makes later ones.
func TestContainsPanics(t *testing.T) {
	testenv.ExpectPanics(t)
	o := Start(0, func() {})
	defer o.End()
	oops := errors.New("oops")
	err := goroutine.Catch(func() error {
		o.Change(func(n *int) {
			*n = 1
			panic(oops)
		})
		return nil
	})
	if !errors.Is(err, oops) {
		t.Errorf("got %v, want the panic", err)
	}
	if got := o.State(); got != 0 {
		t.Errorf("state after the panic: got %d, want it unchanged", got)
	}
	o.Change(func(n *int) { *n = 2 })
	if got := o.State(); got != 2 {
		t.Errorf("state after the next change: got %d, want 2", got)
	}
}

// A change after the end returns and has no effect; the last state stays readable.
func TestChangeAfterEnd(t *testing.T) {
	o := Start(1500, func() {})
	o.End()
	o.Change(func(n *int) { *n = 9000 })
	if got := o.State(); got != 1500 {
		t.Errorf("got %d, want 1500", got)
	}
}
