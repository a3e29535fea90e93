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
	"ironroot/agent/status"
	"ironroot/internal/goroutine"
	"ironroot/storage/block"
	"ironroot/storage/sysfs"
)

// Network notifies of changes of addresses and links.
type Network interface {
	// Changed returns a channel that is closed at the next change.
	Changed() <-chan struct{}
}

// Imager selects the root disk: see [imaging.Imager.RootDisk].
type Imager interface {
	RootDisk(ctx context.Context, refresh bool) (block.Device, error)
}

// Receiver receives inspection data, as JSON, and returns the UUID of the node that it found: see
// [ironic.Client.PostInspection].
type Receiver interface {
	PostInspection(ctx context.Context, body []byte) (nodeUUID string, err error)
}

// Options configure an inspection.
type Options struct {
	Config    *config.Live
	Inventory *inventory.Source
	Journal   *journal.Journal
	Managers  *hardware.Managers
	System    sysfs.Root
	// Imager selects the disk that an image would be written to.
	Imager Imager
	// Network, when set, lets the inspection wait for DHCP.
	Network Network
	// Neighbours receives LLDP frames.
	Neighbours inventory.Neighbours
	// Ironic receives the data.
	Ironic Receiver
	// Board shows the progress of benchmarks; nil shows nothing.
	Board status.Trackers
	Log   *slog.Logger

	times benchmarkTimes // a test shortens the benchmarks
}

// Enabled reports whether the configuration enables an inspection at start.
func Enabled(c *config.Config) bool {
	return c.InspectionCallbackURL != "" || c.InspectionCollectors != "" && c.APIURL != ""
}

// defaultCollectors run if the configuration lists none.
const defaultCollectors = "default,logs"

// Collector is a part of the inspection. It adds its keys to the data. If it fails, the inspection continues and
// reports the error.
type Collector struct {
	Name string   // in ipa-inspection-collectors
	Keys []string // that it adds to the data
	Help string   // text about the keys in docs/inspection.md

	stage int // collectors of one stage run concurrently, after the collectors of earlier stages
	run   func(context.Context, *inspection) error
}

// The stages: collectors that read the machine, that use the inventory, and that report on all others.
const (
	first = iota
	second
	last
	stages
)

// Collectors returns all collectors. The first one collects the inventory.
func Collectors() []Collector {
	const (
		waits = "waits for the root disk's driver and for an address on the interface booted from"
		facts = "facts as hardware-detect lists them, with [benchmarks](#benchmarks) if " +
			"`ipa-inspection-benchmarks` lists some"
	)
	return []Collector{
		{
			"default",
			[]string{"inventory", "root_disk", "boot_interface", "configuration"},
			waits, first, collectDefault,
		},
		{"pci-devices", []string{"pci_devices"}, "", first, collectPCIDevices},
		{"numa-topology", []string{"numa_topology"}, "", first, collectNUMA},
		{"dmi-decode", []string{"dmi"}, "BIOS, processors and memory as dmidecode prints them", first, collectDMI},
		{"lldp", []string{"lldp_raw"}, "the newest LLDP frame of every interface", first, collectLLDP},
		{"usb-devices", []string{"usb_devices"}, "", first, collectUSBDevices},
		{"extra-hardware", []string{"data"}, facts, second, collectExtraHardware},
		{"logs", []string{logsKey}, "the archive of logs", last, collectLogs},
	}
}

// CollectorNames returns the names of all collectors except those in without.
func CollectorNames(without ...string) []string {
	var list []string
	for _, c := range Collectors() {
		if !slices.Contains(without, c.Name) {
			list = append(list, c.Name)
		}
	}
	return list
}

// inspection is one run: its options and the data collected so far.
type inspection struct {
	Options
	names []string
	found *inventory.Inventory // set by the collector default
	links interfaces

	mu   sync.Mutex
	data map[string]any
}

// interfaces lists network interfaces: see [inventory.Source].
type interfaces interface {
	Interfaces(ctx context.Context) ([]inventory.Interface, error)
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
	if o.Board == nil {
		o.Board = (*status.Board)(nil)
	}
	i := &inspection{Options: o, data: map[string]any{"error": nil}, links: o.Inventory}
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
	body, err := i.body(ctx, maxBodyBytes)
	if err == nil {
		nodeUUID, err = o.Ironic.PostInspection(ctx, body)
	}
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

// collect runs the collectors by stage and returns their errors in the order of the configuration.
func (i *inspection) collect(ctx context.Context, chosen []Collector) (failures []error) {
	errs := make([]error, len(chosen))
	for stage := range stages {
		var group []func()
		for n, c := range chosen {
			if c.stage == stage {
				group = append(group, func() { errs[n] = i.runOne(ctx, c) })
			}
		}
		goroutine.Do(group...)
	}
	return slices.DeleteFunc(errs, func(err error) bool { return err == nil })
}

func (i *inspection) runOne(ctx context.Context, c Collector) error {
	started := time.Now()
	err := goroutine.Catch(func() error { return c.run(ctx, i) })
	i.Log.Info("inspection collected", "collector", c.Name, "duration", time.Since(started).Round(time.Millisecond),
		"ok", err == nil)
	if err != nil {
		i.Log.Error("collector failed", "collector", c.Name, "err", err)
		return fmt.Errorf("collector %s failed: %w", c.Name, err)
	}
	return nil
}

// choose returns the configured collectors without duplicates. An unknown name is an error. Then only the inventory is
// collected, without which Ironic would reject the data including the error.
func (i *inspection) choose() ([]Collector, error) {
	option := i.Config.Get().InspectionCollectors
	if option == "" {
		option = defaultCollectors
	}
	all := Collectors()
	var chosen []Collector
	for name := range strings.SplitSeq(option, ",") {
		name = strings.TrimSpace(name)
		if name == "" || slices.Contains(i.names, name) {
			continue
		}
		at := slices.IndexFunc(all, func(c Collector) bool { return c.Name == name })
		if at < 0 {
			i.names = []string{all[0].Name}
			return all[:1], fmt.Errorf("no collector is called %q, there are: %s",
				name, strings.Join(CollectorNames(), ", "))
		}
		chosen = append(chosen, all[at])
		i.names = append(i.names, name)
	}
	return chosen, nil
}

// errorText formats the failures like ironic-python-agent.
func errorText(failures []error) string {
	var text strings.Builder
	text.WriteString("The following errors were encountered:")
	for _, err := range failures {
		text.WriteString("\n* " + err.Error())
	}
	return text.String()
}
