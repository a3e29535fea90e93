package admission

import (
	"net/netip"
	"time"
)

const (
	// tallyWindow is how long a connection counts as an attempt of its peer, at least; at most it is twice as long.
	tallyWindow = time.Minute
	// maxTallied bounds the peers whose attempts are counted.
	maxTallied = 8192
)

// peer is a remote address and the number of connections that it opened lately.
type peer struct {
	addr             netip.Addr
	latest, previous int   // attempts in the present window and in the one before
	network          *peer // the attempts of the peer's network; nil without one
}

// attempts returns the number of connections that the peer opened lately.
func (p *peer) attempts() int { return p.latest + p.previous }

// rank orders peers: the one of the network that opened more connections comes later, and of one network the one that
// opened more itself. An IPv4 address is a network of its own.
func (p *peer) rank() int64 {
	network := p
	if p.network != nil {
		network = p.network
	}
	return int64(network.attempts())<<31 + int64(p.attempts())
}

// networkOf returns the network of an IPv6 address: one host has as many addresses of it as it likes.
func networkOf(addr netip.Addr) (netip.Addr, bool) {
	if !addr.Is6() {
		return netip.Addr{}, false
	}
	prefix, err := addr.WithZone("").Prefix(64)
	return prefix.Addr(), err == nil
}

// tally counts the attempts of strangers. It is guarded by the Listener's mutex.
type tally struct {
	peers map[netip.Addr]*peer
	since time.Time // when the present window began
}

// add counts an attempt. Peers beyond maxTallied count as new each time.
func (t *tally) add(addr netip.Addr, now time.Time) *peer {
	if since := now.Sub(t.since); since < 0 || since >= tallyWindow {
		t.since = now
		for addr, p := range t.peers {
			p.previous, p.latest = p.latest, 0
			if p.previous == 0 {
				delete(t.peers, addr)
			}
		}
	}
	p := t.peers[addr]
	if p == nil {
		p = &peer{addr: addr}
		if len(t.peers) < maxTallied {
			t.peers[addr] = p
		}
	}
	p.latest++
	return p
}
