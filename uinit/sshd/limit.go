//go:build linux

package sshd

import (
	"net/netip"
	"sync"
	"time"

	"ironroot/agent/api/admission"
)

// limits holds the limits of a server. Tests have other ones.
type limits struct {
	Login           time.Duration // of a connection until a user has logged in
	Idle            time.Duration // of a connection without a session
	Attempt         rate          // attempts to log in with a password from one address
	NetworkAttempts rate          // from an IPv6 network
	AllAttempts     rate          // from all addresses together
	MaxWait         time.Duration // of an attempt for its turn; it fails if it would wait longer
	Sessions        int           // of all connections
	PerConn         int           // sessions of a connection
	Connections     admission.Limits
}

var defaultLimits = limits{
	Login:           2 * time.Minute,
	Idle:            10 * time.Minute,
	Attempt:         rate{3 * time.Second, 5},
	NetworkAttempts: rate{300 * time.Millisecond, 25},
	AllAttempts:     rate{100 * time.Millisecond, 50},
	MaxWait:         time.Minute,
	Sessions:        64,
	PerConn:         10,
	Connections: admission.Limits{
		Untrusted: 32, UntrustedPerPeer: 8, Trusted: 32, TrustedPerPeer: 16, TrustedPeers: 16,
	},
}

// rate allows one event per Interval, and Burst events at once after a time without any.
type rate struct {
	Interval time.Duration
	Burst    int
}

// schedule is the state of a rate: when it is as if no event had happened (the theoretical arrival time of the generic
// cell rate algorithm).
type schedule struct{ clear time.Time }

// wait returns how long the next event must wait.
func (s *schedule) wait(r rate, now time.Time) time.Duration {
	return max(0, max(0, s.clear.Sub(now))-time.Duration(r.Burst-1)*r.Interval)
}

// add counts an event.
func (s *schedule) add(r rate, now time.Time) {
	if s.clear.Before(now) {
		s.clear = now
	}
	s.clear = s.clear.Add(r.Interval)
}

// remove counts an event less.
func (s *schedule) remove(r rate) { s.clear = s.clear.Add(-r.Interval) }

// maxPeers limits the number of addresses and networks that a limiter remembers.
const maxPeers = 1024

// limiter spreads the attempts to log in with a password. An attempt waits until its address, its IPv6 network and all
// addresses together are below their rates. The rate of a network is higher than an address's, because users can be in
// the network of an attacker. It is limited, because one machine can use all addresses of a network. An attempt that
// succeeded or was abandoned does not count. It is safe for concurrent use.
type limiter struct {
	limits limits

	mu    sync.Mutex
	peers map[netip.Prefix]*schedule
	all   schedule
}

func newLimiter(l limits) *limiter { return &limiter{limits: l, peers: map[netip.Prefix]*schedule{}} }

// networkBits is the length of the prefix of an IPv6 network.
const networkBits = 64

// peersOf returns what an attempt from an address is counted for: the address, and its network if it is of IPv6.
func peersOf(address netip.Addr) []netip.Prefix {
	address = address.Unmap().WithZone("")
	peers := []netip.Prefix{netip.PrefixFrom(address, address.BitLen())}
	if address.Is6() {
		peers = append(peers, netip.PrefixFrom(address, networkBits).Masked())
	}
	return peers
}

// rate returns the rate of a peer.
func (l *limiter) rate(peer netip.Prefix) rate {
	if peer.Bits() == networkBits {
		return l.limits.NetworkAttempts
	}
	return l.limits.Attempt
}

// reserve counts an attempt and returns how long it must wait. It counts nothing and returns false if that is too long.
func (l *limiter) reserve(address netip.Addr, now time.Time) (time.Duration, bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	wait := l.all.wait(l.limits.AllAttempts, now)
	for _, peer := range peersOf(address) {
		wait = max(wait, l.peer(peer, now).wait(l.rate(peer), now))
	}
	if wait > l.limits.MaxWait {
		return 0, false
	}
	for _, peer := range peersOf(address) {
		l.peer(peer, now).add(l.rate(peer), now)
	}
	l.all.add(l.limits.AllAttempts, now)
	return wait, true
}

// cancel makes an attempt count no longer.
func (l *limiter) cancel(address netip.Addr) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.all.remove(l.limits.AllAttempts)
	for _, peer := range peersOf(address) {
		if s := l.peers[peer]; s != nil {
			s.remove(l.rate(peer))
		}
	}
}

// peer returns the schedule of a peer. If there are too many, those without attempts are forgotten, and otherwise the
// one with the fewest.
func (l *limiter) peer(peer netip.Prefix, now time.Time) *schedule {
	if s := l.peers[peer]; s != nil {
		return s
	}
	if len(l.peers) >= maxPeers {
		var fewest netip.Prefix
		for other, s := range l.peers {
			if s.clear.Before(now) {
				delete(l.peers, other)
			} else if first := l.peers[fewest]; first == nil || s.clear.Before(first.clear) {
				fewest = other
			}
		}
		if len(l.peers) >= maxPeers {
			delete(l.peers, fewest)
		}
	}
	s := new(schedule)
	l.peers[peer] = s
	return s
}
