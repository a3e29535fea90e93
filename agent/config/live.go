package config

import (
	"sync"
	"sync/atomic"
)

// Live is the configuration while the agent runs: snapshots that readers may keep, replaced as a whole when the
// conductor pushes values. It is safe for concurrent use.
type Live struct {
	mu      sync.Mutex // serialises Update
	current atomic.Pointer[Config]
}

// NewLive starts with a copy of c.
func NewLive(c *Config) *Live {
	l := &Live{}
	l.current.Store(c.clone())
	return l
}

// Get returns the present configuration. It is immutable.
func (l *Live) Get() *Config { return l.current.Load() }

// Update lets change edit a copy of the configuration and makes that copy the present one.
func (l *Live) Update(change func(*Config)) {
	l.mu.Lock()
	defer l.mu.Unlock()
	next := l.current.Load().clone()
	change(next)
	l.current.Store(next)
}
