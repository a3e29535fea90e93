package admission

import (
	"net/netip"
	"slices"
)

// pool is a set of connections with a limit, guarded by the Listener's mutex.
type pool struct {
	limit, perPeer int
	conns          []*conn // the oldest first
	count          map[netip.Addr]int
}

func newPool(limit, perPeer int) pool {
	return pool{limit: limit, perPeer: perPeer, count: map[netip.Addr]int{}}
}

func (p *pool) add(c *conn) {
	c.pool = p
	p.conns = append(p.conns, c)
	p.count[c.peer.addr]++
}

func (p *pool) remove(c *conn) {
	i := slices.Index(p.conns, c)
	p.conns = slices.Delete(p.conns, i, i+1)
	if p.count[c.peer.addr]--; p.count[c.peer.addr] == 0 {
		delete(p.count, c.peer.addr)
	}
	c.pool = nil
}

// makeSpace removes the connection that must be closed to admit another one of a peer. It returns nil if the pool has
// capacity. ok is false if no connection can be closed: each has presented a token and is in use, or belongs to a peer
// that recently opened fewer.
func (p *pool) makeSpace(of *peer) (victim *conn, ok bool) {
	switch {
	case p.count[of.addr] >= p.perPeer:
		victim = p.oldest(func(c *conn) bool { return c.peer.addr == of.addr && !c.authenticated })
		if victim == nil {
			victim = p.oldest(func(c *conn) bool { return c.peer.addr == of.addr && !c.busy })
		}
	case len(p.conns) < p.limit:
		return nil, true
	default:
		if victim = p.unauthenticated(); victim == nil {
			victim = p.oldest(func(c *conn) bool { return !c.busy })
		} else if victim.peer.rank() < of.rank() {
			return nil, false
		}
	}
	if victim == nil {
		return nil, false
	}
	p.remove(victim)
	return victim, true
}

// unauthenticated returns the oldest connection without a token of the peer that recently opened the most connections,
// nil if there is none.
func (p *pool) unauthenticated() *conn {
	var found *conn
	for _, c := range p.conns {
		if !c.authenticated && (found == nil || c.peer.rank() > found.peer.rank()) {
			found = c
		}
	}
	return found
}

// oldest returns the oldest connection for which fits returns true, nil if there is none.
func (p *pool) oldest(fits func(*conn) bool) *conn {
	if i := slices.IndexFunc(p.conns, fits); i >= 0 {
		return p.conns[i]
	}
	return nil
}
