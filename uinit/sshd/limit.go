//go:build linux

package sshd

import (
	"net/netip"
	"sync"
	"time"

	"ironroot/agent/api/admission"
)

// limits are those of a server. Tests have other ones.
type limits struct {
	Login       time.Duration // of a connection until a user has logged in
	Idle        time.Duration // of a connection without a session
	Attempt     rate          // attempts to log in with a password from one address
	AllAttempts rate          // from all addresses together
	MaxWait     time.Duration // of an attempt for its turn; it fails if it would wait longer
	Sessions    int           // of all connections
	PerConn     int           // sessions of a connection
	Connections admission.Limits
}

var defaultLimits = limits{
	Login:       2 * time.Minute,
	Idle:        10 * time.Minute,
	Attempt:     rate{3 * time.Second, 5},
	AllAttempts: rate{100 * time.Millisecond, 50},
	MaxWait:     time.Minute,
	Sessions:    64,
	PerConn:     10,
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

// maxPeers limits the number of addresses that a limiter remembers.
const maxPeers = 1024

// limiter spreads the attempts to log in with a password. An attempt waits until its address and all addresses together
// are below their rates. Attempts of other addresses do not delay it by more than AllAttempts per waiting connection.
// An attempt that succeeded or was abandoned does not count. It is safe for concurrent use.
type limiter struct {
	limits limits

	mu    sync.Mutex
	peers map[netip.Addr]*schedule
	all   schedule
}

func newLimiter(l limits) *limiter { return &limiter{limits: l, peers: map[netip.Addr]*schedule{}} }

// peerOf returns what an address is counted as: IPv6 addresses by their network, of which one machine has many.
func peerOf(address netip.Addr) netip.Addr {
	const networkBits = 64
	address = address.Unmap().WithZone("")
	if !address.Is6() {
		return address
	}
	network, _ := address.Prefix(networkBits) // the number of bits is valid
	return network.Addr()
}

// reserve counts an attempt and returns how long it must wait. It counts nothing and returns false if that is too long.
func (l *limiter) reserve(address netip.Addr, now time.Time) (time.Duration, bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	peer := l.peer(peerOf(address), now)
	wait := max(peer.wait(l.limits.Attempt, now), l.all.wait(l.limits.AllAttempts, now))
	if wait > l.limits.MaxWait {
		return 0, false
	}
	peer.add(l.limits.Attempt, now)
	l.all.add(l.limits.AllAttempts, now)
	return wait, true
}

// cancel makes an attempt count no longer.
func (l *limiter) cancel(address netip.Addr) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.all.remove(l.limits.AllAttempts)
	if peer := l.peers[peerOf(address)]; peer != nil {
		peer.remove(l.limits.Attempt)
	}
}

// peer returns the schedule of a peer. If there are too many, those without attempts are forgotten, and otherwise the
// one with the fewest.
func (l *limiter) peer(peer netip.Addr, now time.Time) *schedule {
	if s := l.peers[peer]; s != nil {
		return s
	}
	if len(l.peers) >= maxPeers {
		var fewest netip.Addr
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
