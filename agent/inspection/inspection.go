// Package inspection collects what Ironic's in-band inspection wants to know about a machine and posts it.
//
// The data, the names of the collectors and the form of the error text are those of ironic-python-agent. No program is
// run: what dmidecode, lshw and hardware-detect say there is read from the kernel here. Benchmarks are not run.
package inspection

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"

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
	// Neighbours hears LLDP frames.
	Neighbours inventory.Neighbours
	// Post sends the data and returns the uuid of the node that Ironic found for it.
	Post func(ctx context.Context, data any) (nodeUUID string, err error)
	Log  *slog.Logger
}

// Enabled says whether the configuration asks for an inspection at start.
func Enabled(c *config.Config) bool {
	return c.InspectionCallbackURL != "" || c.InspectionCollectors != "" && c.APIURL != ""
}

// defaultCollectors run when the configuration names none.
const defaultCollectors = "default,logs"

// collector adds its part to the data. What it could not find out is its error; the inspection goes on.
type collector struct {
	name string
	run  func(context.Context, *inspection) error
}

// collectors are all there are.
func collectors() []collector {
	return []collector{
		{"default", collectDefault},
		{"logs", collectLogs},
		{"pci-devices", collectPCIDevices},
		{"extra-hardware", collectExtraHardware},
		{"numa-topology", collectNUMA},
		{"dmi-decode", collectDMI},
		{"lldp", collectLLDP},
		{"usb-devices", collectUSBDevices},
	}
}

// inspection is one run: its options and the data as it grows.
type inspection struct {
	Options
	names      []string
	data       map[string]any
	found      *inventory.Inventory // by the collector default
	interfaces func(ctx context.Context) ([]inventory.Interface, error)
}

// Run collects and posts. What a collector could not do is posted as the data's error, and returned as an error after
// the data is sent; nodeUUID is then still what Ironic answered.
func Run(ctx context.Context, o Options) (nodeUUID string, err error) {
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	i := &inspection{Options: o, data: map[string]any{"error": nil}, interfaces: o.Inventory.Interfaces}
	var failures []error
	chosen, err := i.choose()
	if err != nil {
		failures = append(failures, err)
	}
	for _, c := range chosen {
		o.Log.Info("inspection collects", "collector", c.name)
		if err := c.run(ctx, i); err != nil {
			o.Log.Error("collector failed", "collector", c.name, "err", err)
			failures = append(failures, fmt.Errorf("collector %s failed: %w", c.name, err))
		}
	}
	if len(failures) > 0 {
		i.data["error"] = errorText(failures)
	}
	nodeUUID, err = o.Post(ctx, i.data)
	if err != nil {
		failures = append(failures, fmt.Errorf("post inspection data: %w", err))
	}
	if len(failures) > 0 {
		return nodeUUID, fmt.Errorf("inspection failed: %w", errors.Join(failures...))
	}
	return nodeUUID, nil
}

// choose finds the configured collectors. A name that is unknown leaves none to run.
func (i *inspection) choose() ([]collector, error) {
	option := i.Config.Get().InspectionCollectors
	if option == "" {
		option = defaultCollectors
	}
	known := map[string]collector{}
	var names []string
	for _, c := range collectors() {
		known[c.name] = c
		names = append(names, c.name)
	}
	var chosen []collector
	for name := range strings.SplitSeq(option, ",") {
		name = strings.TrimSpace(name)
		if name == "" {
			continue
		}
		c, ok := known[name]
		if !ok {
			return nil, fmt.Errorf("no collector is called %q, there are: %s", name, strings.Join(names, ", "))
		}
		chosen = append(chosen, c)
		i.names = append(i.names, name)
	}
	return chosen, nil
}

// errorText lists the failures as the protocol's error shows them.
func errorText(failures []error) string {
	var text strings.Builder
	text.WriteString("The following errors were encountered:")
	for _, err := range failures {
		text.WriteString("\n* " + err.Error())
	}
	return text.String()
}
