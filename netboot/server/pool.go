package server

import (
	"net/netip"
	"slices"
)

// slot is the place of a transfer or connection of an address in a pool.
type slot struct {
	address netip.Addr // of the client
	pool    *pool      // that contains it; nil after its removal
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

// count returns the number of an address's slots.
func (p *pool) count(address netip.Addr) int {
	count := 0
	for _, s := range p.list {
		if s.address == address {
			count++
		}
	}
	return count
}

// largest returns the oldest slot of the address with the most slots, and their number. Of addresses with equally many,
// it is the one with the oldest slot.
func (p *pool) largest() (oldest *slot, count int) {
	counts := map[netip.Addr]int{}
	for _, s := range p.list {
		counts[s.address]++
	}
	for _, s := range p.list {
		if counts[s.address] > count {
			oldest, count = s, counts[s.address]
		}
	}
	return oldest, count
}

// makeSpace makes space for a slot of an address. From a full pool it removes the oldest slot of the address with the
// most slots, and returns it. ok is false if that address would then have fewer than the other one.
func (p *pool) makeSpace(address netip.Addr) (removed *slot, ok bool) {
	if !p.full() {
		return nil, true
	}
	oldest, count := p.largest()
	if count <= p.count(address)+1 {
		return nil, false
	}
	p.remove(oldest)
	return oldest, true
}
