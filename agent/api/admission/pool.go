package admission

import (
	"net/netip"
	"slices"
)

// pool is a set of connections with a limit, guarded by the Listener's mutex.
type pool struct {
	limit, perPeer int
	conns          []*conn // the oldest first
}

func (p *pool) add(c *conn) {
	c.pool = p
	p.conns = append(p.conns, c)
}

func (p *pool) remove(c *conn) {
	c.pool = nil
	p.conns = slices.DeleteFunc(p.conns, func(other *conn) bool { return other == c })
}

// makeSpace takes the connection out of the pool that has to be closed for another one of the peer; nil where there is
// space. ok is false when every connection that could make space is in use by someone who presented a token.
func (p *pool) makeSpace(peer netip.Addr) (victim *conn, ok bool) {
	count := p.count()
	switch {
	case count[peer] >= p.perPeer:
		victim = p.oldest(func(c *conn) bool { return c.peer == peer && !c.authenticated })
		if victim == nil {
			victim = p.oldest(func(c *conn) bool { return c.peer == peer && !c.busy })
		}
	case len(p.conns) >= p.limit:
		if victim = p.unauthenticated(); victim == nil {
			victim = p.oldest(func(c *conn) bool { return !c.busy })
		}
	default:
		return nil, true
	}
	if victim == nil {
		return nil, false
	}
	p.remove(victim)
	return victim, true
}

// count returns the number of connections of each peer.
func (p *pool) count() map[netip.Addr]int {
	count := make(map[netip.Addr]int, len(p.conns))
	for _, c := range p.conns {
		count[c.peer]++
	}
	return count
}

// unauthenticated returns the oldest connection without a token of the peer that has most of them, nil without one.
func (p *pool) unauthenticated() *conn {
	count := map[netip.Addr]int{}
	most := 0
	for _, c := range p.conns {
		if !c.authenticated {
			count[c.peer]++
			most = max(most, count[c.peer])
		}
	}
	return p.oldest(func(c *conn) bool { return !c.authenticated && count[c.peer] == most })
}

// oldest returns the oldest connection that fits, nil without one.
func (p *pool) oldest(fits func(*conn) bool) *conn {
	if i := slices.IndexFunc(p.conns, fits); i >= 0 {
		return p.conns[i]
	}
	return nil
}
