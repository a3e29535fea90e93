package config

import (
	"maps"
	"slices"
)

// clone returns a deep copy of c.
func (c *Config) clone() *Config {
	n := *c
	n.PermittedImageFormats = slices.Clone(c.PermittedImageFormats)
	n.MDNS.AllowedOverrides = slices.Clone(c.MDNS.AllowedOverrides)
	n.MDNS.Params = maps.Clone(c.MDNS.Params)
	n.MDNS.Interfaces = slices.Clone(c.MDNS.Interfaces)
	n.Container.AllowedContainers = slices.Clone(c.Container.AllowedContainers)
	n.Container.PullOptions = slices.Clone(c.Container.PullOptions)
	n.Container.RunOptions = slices.Clone(c.Container.RunOptions)
	n.Params = maps.Clone(c.Params)
	return &n
}
