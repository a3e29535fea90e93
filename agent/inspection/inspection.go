// Package inspection collects the data of Ironic's in-band inspection about a machine and posts it.
//
// The data, the names of the collectors and the form of the error text are those of ironic-python-agent. Data that
// ironic-python-agent gets from dmidecode, lshw and hardware-detect is read from the kernel. Benchmarks are not run.
package inspection

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"time"

	"ironroot/agent/config"
	"ironroot/agent/hardware"
	"ironroot/agent/inventory"
	"ironroot/agent/journal"
	"ironroot/internal/goroutine"
	"ironroot/storage/block"
)

// Network notifies of changes of addresses and links.
type Network interface {
	// Changed returns a channel that is closed at the next change.
	Changed() <-chan struct{}
}

// Options configure an inspection.
type Options struct {
	Config    *config.Live
	Inventory *inventory.Source
	Journal   *journal.Journal
	Managers  *hardware.Managers
	System    block.System
	// RootDisk picks the disk an operating system would go to.
	RootDisk func(ctx context.Context) (block.Device, error)
	// Network, when set, lets the inspection wait for DHCP.
	Network Network
	// Neighbours receives LLDP frames.
	Neighbours inventory.Neighbours
	// Post sends the data and returns the UUID of the node that Ironic found.
	Post func(ctx context.Context, data any) (nodeUUID string, err error)
	Log  *slog.Logger
}

// Enabled reports whether the configuration enables an inspection at start.
func Enabled(c *config.Config) bool {
	return c.InspectionCallbackURL != "" || c.InspectionCollectors != "" && c.APIURL != ""
}

// defaultCollectors run if the configuration lists none.
const defaultCollectors = "default,logs"

// collector adds its part to the data. What it could not find out is its error; the inspection goes on.
type collector struct {
	name string
	turn int // collectors of one turn run concurrently, after those of the turns before
	run  func(context.Context, *inspection) error
}

// The stages: collectors that read the machine, that use the inventory, and that report on all others.
const (
	first = iota
	second
	last
	turns
)

// collectors are all there are. The first one collects the inventory.
func collectors() []collector {
	return []collector{
		{"default", first, collectDefault},
		{"pci-devices", first, collectPCIDevices},
		{"numa-topology", first, collectNUMA},
		{"dmi-decode", first, collectDMI},
		{"lldp", first, collectLLDP},
		{"usb-devices", first, collectUSBDevices},
		{"extra-hardware", second, collectExtraHardware},
		{"logs", last, collectLogs},
	}
}

// inspection is one run: its options and the data collected so far.
type inspection struct {
	Options
	names      []string
	found      *inventory.Inventory // set by the collector default
	interfaces func(ctx context.Context) ([]inventory.Interface, error)

	mu   sync.Mutex
	data map[string]any
}

// set adds a key to the data.
func (i *inspection) set(key string, value any) {
	i.mu.Lock()
	defer i.mu.Unlock()
	i.data[key] = value
}

// Run collects and posts the data. Failures of collectors are posted as the data's error, and returned after the data
// is sent; nodeUUID is then the UUID that Ironic returned.
func Run(ctx context.Context, o Options) (nodeUUID string, err error) {
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	i := &inspection{Options: o, data: map[string]any{"error": nil}, interfaces: o.Inventory.Interfaces}
	started := time.Now()
	chosen, err := i.choose()
	failures := i.collect(ctx, chosen)
	if err != nil {
		failures = append(failures, err)
	}
	if len(failures) > 0 {
		i.data["error"] = errorText(failures)
	}
	collected := time.Now()
	nodeUUID, err = o.Post(ctx, i.data)
	if err != nil {
		failures = append(failures, fmt.Errorf("post inspection data: %w", err))
	}
	o.Log.Info("inspection ended", "collecting", collected.Sub(started).Round(time.Millisecond),
		"posting", time.Since(collected).Round(time.Millisecond), "ok", len(failures) == 0)
	if len(failures) > 0 {
		return nodeUUID, fmt.Errorf("inspection failed: %w", errors.Join(failures...))
	}
	return nodeUUID, nil
}

// collect runs collectors in their turns and returns what they could not do, in the order of the configuration.
func (i *inspection) collect(ctx context.Context, chosen []collector) (failures []error) {
	errs := make([]error, len(chosen))
	for turn := range turns {
		var side []func()
		for n, c := range chosen {
			if c.turn == turn {
				side = append(side, func() { errs[n] = i.runOne(ctx, c) })
			}
		}
		goroutine.Do(side...)
	}
	return slices.DeleteFunc(errs, func(err error) bool { return err == nil })
}

func (i *inspection) runOne(ctx context.Context, c collector) error {
	started := time.Now()
	err := goroutine.Catch(func() error { return c.run(ctx, i) })
	i.Log.Info("inspection collected", "collector", c.name, "took", time.Since(started).Round(time.Millisecond), "ok", err == nil)
	if err != nil {
		i.Log.Error("collector failed", "collector", c.name, "err", err)
		return fmt.Errorf("collector %s failed: %w", c.name, err)
	}
	return nil
}

// choose finds the configured collectors, each once. A name that is unknown is an error that leaves nothing but the
// inventory, without which Ironic would not even take the error.
func (i *inspection) choose() ([]collector, error) {
	option := i.Config.Get().InspectionCollectors
	if option == "" {
		option = defaultCollectors
	}
	all := collectors()
	var chosen []collector
	for name := range strings.SplitSeq(option, ",") {
		name = strings.TrimSpace(name)
		if name == "" || slices.Contains(i.names, name) {
			continue
		}
		at := slices.IndexFunc(all, func(c collector) bool { return c.name == name })
		if at < 0 {
			i.names = []string{all[0].name}
			return all[:1], fmt.Errorf("no collector is called %q, there are: %s", name, strings.Join(names(all), ", "))
		}
		chosen = append(chosen, all[at])
		i.names = append(i.names, name)
	}
	return chosen, nil
}

func names(all []collector) []string {
	var list []string
	for _, c := range all {
		list = append(list, c.name)
	}
	return list
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
