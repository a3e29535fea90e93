package server

import (
	"net/netip"
	"slices"
)

// slot is the place of a transfer or connection of a client in a pool.
type slot struct {
	client netip.Addr
	pool   *pool // that contains it; nil after its removal
}

// pool contains the slots of transfers or connections. It is not safe for concurrent use.
type pool struct {
	limit int
	list  []*slot // the oldest first
}

func (p *pool) full() bool { return len(p.list) >= p.limit }

func (p *pool) add(s *slot) {
	s.pool = p
	p.list = append(p.list, s)
}

func (p *pool) remove(s *slot) {
	i := slices.Index(p.list, s)
	p.list = slices.Delete(p.list, i, i+1)
	s.pool = nil
}

// count returns the number of a client's slots.
func (p *pool) count(client netip.Addr) int {
	count := 0
	for _, s := range p.list {
		if s.client == client {
			count++
		}
	}
	return count
}

// largest returns the oldest slot of the client with the most slots, and their number. Of clients with equally many, it
// is the one with the oldest slot.
func (p *pool) largest() (oldest *slot, count int) {
	counts := map[netip.Addr]int{}
	for _, s := range p.list {
		counts[s.client]++
	}
	for _, s := range p.list {
		if counts[s.client] > count {
			oldest, count = s, counts[s.client]
		}
	}
	return oldest, count
}

// makeSpace makes space for a slot of a client. From a full pool it removes the oldest slot of the client with the most
// slots, and returns it. ok is false if that client would then have fewer than the other one.
func (p *pool) makeSpace(client netip.Addr) (removed *slot, ok bool) {
	if !p.full() {
		return nil, true
	}
	oldest, count := p.largest()
	if count <= p.count(client)+1 {
		return nil, false
	}
	p.remove(oldest)
	return oldest, true
}
