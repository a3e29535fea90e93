package config

import (
	"sync"
	"sync/atomic"
)

// Live is the configuration of a running agent, as immutable snapshots. An update replaces the snapshot. Live is safe
// for concurrent use.
type Live struct {
	mu      sync.Mutex // serialises Update
	current atomic.Pointer[Config]
}

// NewLive returns a Live whose first snapshot is a copy of c.
func NewLive(c *Config) *Live {
	l := &Live{}
	l.current.Store(c.clone())
	return l
}

// Get returns the current snapshot.
func (l *Live) Get() *Config { return l.current.Load() }

// Update calls change with a copy of the configuration, and makes the copy the current snapshot.
func (l *Live) Update(change func(*Config)) {
	l.mu.Lock()
	defer l.mu.Unlock()
	next := l.current.Load().clone()
	change(next)
	l.current.Store(next)
}
