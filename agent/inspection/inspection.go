// Package inspection collects what Ironic's in-band inspection wants to know about a machine and posts it.
package inspection

import (
	"context"
	"errors"
	"log/slog"

	"ironroot/agent/config"
	"ironroot/agent/hardware"
	"ironroot/agent/inventory"
	"ironroot/agent/journal"
	"ironroot/storage/block"
)

// Network tells when addresses or links change.
type Network interface {
	// Changed returns a channel that is closed at the next change.
	Changed() <-chan struct{}
}

// Options are what an inspection works with.
type Options struct {
	Config    *config.Live
	Inventory *inventory.Source
	Journal   *journal.Journal
	Managers  *hardware.Managers
	System    block.System
	// RootDisk picks the disk an operating system would go to.
	RootDisk func(ctx context.Context) (block.Device, error)
	// Network, when set, lets the inspection wait for DHCP on the interfaces it is about.
	Network Network
	// Post sends the data and returns the uuid of the node that Ironic found for it.
	Post func(ctx context.Context, data any) (nodeUUID string, err error)
	Log  *slog.Logger
}

// Enabled says whether the configuration asks for an inspection at start.
func Enabled(c *config.Config) bool {
	return c.InspectionCallbackURL != "" || c.InspectionCollectors != "" && c.APIURL != ""
}

// Run collects and posts. What a collector could not do is posted as the data's error, and returned as an error after
// the data is sent; nodeUUID is then still what Ironic answered.
func Run(ctx context.Context, o Options) (nodeUUID string, err error) {
	return "", errors.New("not there yet")
}
