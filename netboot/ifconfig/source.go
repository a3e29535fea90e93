//go:build linux

package ifconfig

import (
	"cmp"
	"slices"
)

// Source applies to an interface what comes from one source, such as a DHCP server, and remembers it. It must not be
// used concurrently.
type Source struct {
	index  int // of the interface
	metric int // of the routes
	config Config
}

// NewSource returns a source for the interface with a kernel index. It has configured nothing yet.
func NewSource(index int) Source { return Source{index: index} }

// Config returns what the source configured.
func (s *Source) Config() Config { return s.config }

// Replace applies a configuration in place of the one before. After an error the interface may have parts of both, all
// of which the next change removes.
func (s *Source) Replace(metric int, next Config) error {
	before := s.config
	s.metric = metric
	if err := apply(s.index, metric, before, next); err != nil {
		s.config.Addresses = slices.Concat(before.Addresses, next.Addresses)
		s.config.Routes = slices.Concat(before.Routes, next.Routes)
		s.config.MTU = cmp.Or(next.MTU, before.MTU)
		return err
	}
	s.config = next
	return nil
}

// ApplyParts applies a configuration to an interface without one, address by address and route by route. It calls
// failed for each part that the kernel rejects, and remembers the others.
func (s *Source) ApplyParts(metric int, wanted Config, failed func(part string, err error)) {
	s.metric = metric
	s.config = applyParts(s.index, metric, wanted, failed)
}

// Clear removes the configuration. After an error the remains are given up.
func (s *Source) Clear() error {
	before := s.config
	s.config = Config{}
	return apply(s.index, s.metric, before, Config{})
}
