package admission

import (
	"net/netip"
	"time"
)

const (
	// tallyWindow is the minimum time that a connection counts as an attempt of its peer. The maximum is twice as long.
	tallyWindow = time.Minute
	// maxTallied limits the number of peers whose attempts are counted.
	maxTallied = 8192
)

// peer is a remote address and the number of connections that it recently opened.
type peer struct {
	addr             netip.Addr
	latest, previous int   // attempts in the current window and in the previous one
	network          *peer // attempts of the peer's network; nil without one
}

// attempts returns the number of connections that the peer recently opened.
func (p *peer) attempts() int { return p.latest + p.previous }

// rank orders peers by the attempts of their network, and within a network by their own attempts. An IPv4 address is a
// network of its own.
func (p *peer) rank() int64 {
	network := p
	if p.network != nil {
		network = p.network
	}
	return int64(network.attempts())<<31 + int64(p.attempts())
}

// networkOf returns the /64 network of an IPv6 address, of which a single host can use any address.
func networkOf(addr netip.Addr) (netip.Addr, bool) {
	if !addr.Is6() {
		return netip.Addr{}, false
	}
	prefix, err := addr.WithZone("").Prefix(64)
	return prefix.Addr(), err == nil
}

// tally counts the attempts of untrusted peers. It is guarded by the Listener's mutex.
type tally struct {
	peers map[netip.Addr]*peer
	since time.Time // start of the current window
}

// add counts an attempt. A peer beyond maxTallied counts as new each time.
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
