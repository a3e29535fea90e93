package agent

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"sync"
	"sync/atomic"
	"time"

	"ironroot/agent/api"
	"ironroot/agent/clock"
	"ironroot/agent/command"
	"ironroot/agent/config"
	"ironroot/agent/extension"
	"ironroot/agent/hardware"
	"ironroot/agent/hardware/containers"
	"ironroot/agent/hardware/external"
	"ironroot/agent/hardware/generic"
	"ironroot/agent/hardware/nvidia"
	"ironroot/agent/imaging"
	"ironroot/agent/inventory"
	"ironroot/agent/ironic"
	"ironroot/agent/journal"
	"ironroot/agent/metrics"
	"ironroot/agent/node"
	"ironroot/agent/power"
	"ironroot/agent/selftest"
	"ironroot/agent/softraid"
	"ironroot/agent/token"
	"ironroot/internal/goroutine"
	"ironroot/internal/pause"
	"ironroot/internal/timelimit"
	"ironroot/storage/block"
	"ironroot/storage/iscsitarget"
	"ironroot/storage/multipath"
	"ironroot/storage/sysfs"
)

const (
	// journalSize is the size in bytes of the journal if the caller provides none.
	journalSize = 1 << 20
	// exportGrace limits the wait for the kernel once the time for the removal of an iSCSI target is over.
	exportGrace = time.Second
)

// agent is the state of the process. The token and the records of commands must survive every failure, because Ironic
// hands the token out once and reads the state of a deployment from the records.
type agent struct {
	o       Options
	started time.Time
	log     *slog.Logger
	config  *config.Live
	node    node.Cache
	token   token.Token

	ironic    *ironic.Client                    // nil in standalone mode
	managers  atomic.Pointer[hardware.Managers] // nil until all are loaded; custom managers start goroutines before
	builtin   *generic.Manager
	inventory *inventory.Source
	imager    *imaging.Imager
	targets   exporter
	commands  *command.Registry
	api       *api.API

	inspectedUUID string         // UUID that the inspection returned
	notInspected  string         // why no inspection has enrolled the node, "" if one succeeded
	answer        *ironic.Answer // of the lookup; nil without Ironic
	lookupMACs    []string       // of the lookup
	endpoint      ironic.Endpoint
	certificate   *api.Certificate // generated; nil without
	server        *api.Server
	apiIronic     atomic.Pointer[ironic.Client] // client of the Ironic that calls the API; nil without

	clocks          clocks
	timeServer      string       // that the operator configured, "" for none
	clockUnverified atomic.Bool  // the system clock was set from an unverified source
	ironicClock     verifiedTime // nil before there is an Ironic

	reportedSettings []string // settings already reported as having no effect
	checkedCiphers   string   // cipher list that was last checked

	heartbeater atomic.Pointer[ironic.Heartbeater]
	once        sync.Once
	locked      chan struct{} // closed by Lockdown
	onceRescued sync.Once
	rescued     chan struct{} // closed by Rescue
}

// exporter exports the root disk: see [iscsitarget.Exporter].
type exporter interface {
	imaging.Exporter
	Close(ctx context.Context) error
}

// ownPorts are the ports of this machine.
type ownPorts struct{}

// Listen implements [Ports].
func (ownPorts) Listen(ctx context.Context, host string, port int) (net.Listener, error) {
	return api.Listen(ctx, host, port)
}

func newAgent(o Options) *agent {
	if o.Journal == nil {
		o.Journal = journal.New(io.Discard, nil, journalSize)
	}
	if o.Machine = o.Machine.withDefaults(); !o.Destructive {
		o.Machine.Power = power.Refused{}
	}
	if o.Version == "" {
		o.Version = Version
	}
	if o.Dialer == nil {
		o.Dialer = new(net.Dialer)
	}
	if o.Ports == nil {
		o.Ports = ownPorts{}
	}
	if o.Pause == 0 {
		o.Pause = 30 * time.Second
	}
	if o.System.Files == nil {
		o.System.Files = &sysfs.Reader{Log: o.Journal.Logger()}
	}
	redactSecrets(o.Journal, o.Config) // before the first line is logged
	return &agent{
		o:       o,
		started: time.Now(),
		log:     o.Journal.Logger(),
		targets: &iscsitarget.Exporter{
			System: o.System, Modules: o.Machine.Modules, Log: o.Journal.Logger(),
		},
		config:     config.NewLive(o.Config),
		clocks:     clock.Machine{},
		timeServer: o.Config.NTPServer,
		locked:     make(chan struct{}),
		rescued:    make(chan struct{}),
	}
}

func (a *agent) close() {
	if a.commands != nil {
		a.commands.Close()
	}
	a.endExport(context.Background())
}

// endExport removes the iSCSI target of the root disk, if there is one. Failures are logged.
func (a *agent) endExport(ctx context.Context) {
	if err := a.removeTarget(ctx); err != nil {
		a.log.Error("iSCSI target not removed", "err", err)
	}
}

// removeTarget is endExport with an error.
func (a *agent) removeTarget(ctx context.Context) error {
	limits := timelimit.Limits{NoProgress: extension.DetachTimeout, Grace: exportGrace}
	return timelimit.Run(ctx, limits, a.targets.Close)
}

// Detach implements [extension.Stop]. It also ends the export of the root disk.
func (a *agent) Detach(ctx context.Context) {
	a.endExport(ctx)
	a.o.Machine.Disks.Detach(ctx)
}

// reload applies a configuration that was read after the start, for example from virtual media.
func (a *agent) reload(ctx context.Context) {
	c := a.o.Machine.Media.Reload(ctx)
	if c == nil {
		return
	}
	redactSecrets(a.o.Journal, c)
	a.config.Update(func(current *config.Config) { *current = *c })
	a.ironic = nil // its URLs and certificates can differ
	a.log.Info("configuration reloaded", "api_url", c.APIURL)
}

// configure applies the operator's configuration: log level, preset token, client of Ironic.
func (a *agent) configure(context.Context) error {
	c := a.config.Get()
	if c.Debug {
		a.o.Journal.Level().Set(slog.LevelDebug)
	}
	a.warnOptions()
	switch {
	case a.token.Known() || c.AgentToken == "":
	case c.TokenUnverified:
		a.log.Info("token of virtual media used once Ironic has accepted it")
		a.token.SetUnverified(c.AgentToken)
	default:
		a.token.Set(c.AgentToken)
	}
	if c.Standalone || a.ironic != nil {
		return nil
	}
	o := ironic.Options{
		Config: a.config, Token: &a.token, Log: a.log, Version: a.o.Version, Dialer: a.o.Dialer,
		Board: a.o.Board,
	}
	if a.o.Machine.Network != nil {
		o.Network = a.o.Machine.Network
	}
	if a.o.Destructive {
		o.Clock = unverifiedClock{a}
	}
	client, err := ironic.New(o)
	if err != nil {
		return err
	}
	a.ironic, a.ironicClock = client, client
	a.o.Board.Ironic(c.APIURLs())
	return nil
}

// withIronic reports whether there is an Ironic to look the node up in and to send heartbeats to.
func (a *agent) withIronic() bool { return a.ironic != nil && len(a.config.Get().APIURLs()) > 0 }

// loadHardware creates the managers, the commands and the API. It runs once per process: the set of managers must not
// change.
func (a *agent) loadHardware(ctx context.Context) error {
	if a.managers.Load() != nil {
		return nil
	}
	a.inventory = inventory.New(inventory.Options{
		System: a.o.System, Disks: a, Config: a.config, Node: &a.node, BMC: a.o.BMC, Log: a.log,
		Neighbours: a.neighbours(),
	})
	a.imager = imaging.New(imaging.Options{
		Config: a.config, Node: &a.node, Disks: a, Hardware: imagerHardware{a}, Ironic: a,
		System: a.o.System, Log: a.log, Journal: a.o.Journal, Targets: a.targets,
		Board: a.o.Board,
	})
	list := a.builtinManagers()
	if custom := a.customManagers(ctx); len(custom) > 0 {
		a.settle(ctx, managersSettleTimeout)
		list = append(list, custom...)
	}
	managers, err := hardware.Load(ctx, list, a.log)
	if err != nil {
		return err
	}
	a.managers.Store(managers)
	a.commands = command.NewRegistry(extension.All(a.deps()), command.Options{
		AllowDestructive: a.o.Destructive, Observer: commandObserver{a}, Redactor: a.o.Journal, Log: a.log,
	})
	a.api = api.New(api.Options{
		Commands: a.commands, Token: &a.token, Version: a.o.Version, Started: a.started, Log: a.log,
		Timers: metrics.New(a.config, a.log), Ironic: a,
	})
	goroutine.Go(func() error { return a.logSelfTest(ctx) }, func(err error) {
		if err != nil && ctx.Err() == nil {
			a.log.Error("self-test failed", "err", err)
		}
	})
	return pause.For(ctx, a.config.Get().HardwareInitializationDelay)
}

// builtinManagers returns the managers of every image. Among managers of one level, the order decides who is asked
// first. docs/steps.md has a table of the steps of each.
func (a *agent) builtinManagers() []hardware.Manager {
	var join generic.Joiner
	if a.o.Destructive {
		join = &multipath.Joiner{System: a.o.System, Log: a.log}
	}
	a.builtin = generic.New(generic.Options{
		Config: a.config, System: a.o.System, Disks: a, Imager: a.imager, Log: a.log,
		Settled: a.o.Machine.Drivers.Settled(),
		Join:    join, Journal: a.o.Journal, Version: a.o.Version, Dialer: a.o.Dialer,
		Board: a.o.Board,
	})
	return []hardware.Manager{
		a.builtin, a.containerManager(), a.nvidiaManager(), &selftest.Manager{Reporter: a},
	}
}

// BuiltinManagers returns the managers of every image with a configuration, to list their steps without a machine.
func BuiltinManagers(c *config.Config) []hardware.Manager {
	return newAgent(Options{Config: c}).builtinManagers()
}

// commandObserver shows commands on the board, and tells Ironic when an asynchronous one has ended.
type commandObserver struct{ a *agent }

// Started implements [command.Observer].
func (o commandObserver) Started(name string, p command.Params) {
	o.a.o.Board.Begin(name, extension.StepName(p))
}

// Ended implements [command.Observer].
func (o commandObserver) Ended(err error) { o.a.o.Board.End(err) }

// Finished implements [command.Observer].
func (o commandObserver) Finished() { o.a.forceHeartbeat() }

// containerManager returns the manager whose steps run containers.
func (a *agent) containerManager() hardware.Manager {
	runner := &containers.Runner{
		System: a.o.System, Fetcher: a.imager, Disks: a, Log: a.log,
		Board: a.o.Board,
	}
	return containers.New(containers.Options{
		Config: a.config, Managers: a, Runtime: runner, Log: a.log,
	})
}

// StepNames implements [containers.StepNamer].
func (a *agent) StepNames(class string, n *node.Node, ports []map[string]any) (map[string]bool, error) {
	return a.managers.Load().StepNames(class, n, ports)
}

// nvidiaManager returns the manager for network cards of NVIDIA.
func (a *agent) nvidiaManager() hardware.Manager {
	return nvidia.New(nvidia.Options{
		Config: a.config, System: a.o.System, Images: a.imager, Tools: toolRoots{a.o.RootsDir}, Log: a.log,
		Board: a.o.Board,
	})
}

// toolRoots finds tools in the manager roots of a directory.
type toolRoots struct{ dir string }

// FindTools implements [nvidia.ToolFinder].
func (r toolRoots) FindTools(ctx context.Context, names ...string) (nvidia.Tools, error) {
	return external.FindTools(ctx, r.dir, names...)
}

// customManagers returns the managers that the operator added to the image.
func (a *agent) customManagers(ctx context.Context) []hardware.Manager {
	var list []hardware.Manager
	add := func(manager hardware.Manager) {
		list = append(list, hardware.Custom{Manager: manager, EraseManagers: a.config.Get().EraseManagers})
	}
	for _, create := range a.o.Managers {
		add(create.Create(ctx, hardware.Machine{System: a.o.System, Disks: customDisks{a}, Log: a.log}))
	}
	if a.o.ManagersDir != "" {
		for _, manager := range external.Load(ctx, a.o.ManagersDir, a.log, a.o.Board) {
			add(manager)
		}
	}
	if a.o.RootsDir != "" {
		for _, manager := range external.LoadRoots(ctx, a.o.RootsDir, a.log, a.o.Board) {
			add(manager)
		}
	}
	return list
}

// customDisks is the lister of disks for custom managers.
type customDisks struct{ a *agent }

// Disks implements [block.Lister]. It fails until all managers are loaded.
func (c customDisks) Disks(ctx context.Context) ([]block.Device, error) {
	managers := c.a.managers.Load()
	if managers == nil {
		return nil, errors.New("list disks: hardware managers not loaded")
	}
	return managers.Disks(ctx)
}

func (a *agent) deps() extension.Deps {
	d := extension.Deps{
		Config: a.config, Node: &a.node, Managers: a.managers.Load(), Imager: a.imager, Inventory: a.inventory,
		Power: drainingPower{a.o.Machine.Power, a}, Journal: a.o.Journal, System: a.o.System, Control: a, Log: a.log,
		Stop: a, AllowDestructive: a.o.Destructive,
	}
	if a.config.Get().Standalone {
		d.Standalone = a
	}
	return d
}

// PrepareRescue implements [extension.Control]. An exported disk would stay exported in the user's network,
// because the kernel keeps the target when process 1 executes itself again.
func (a *agent) PrepareRescue(ctx context.Context) error {
	if err := a.removeTarget(ctx); err != nil {
		return fmt.Errorf("end export of the root disk: %w", err)
	}
	return a.o.Machine.Logins.PrepareRescue(ctx)
}

// Disks implements [block.Lister]. Before the managers are loaded, it lists all disks.
func (a *agent) Disks(ctx context.Context) ([]block.Device, error) {
	if managers := a.managers.Load(); managers != nil {
		return managers.Disks(ctx)
	}
	return block.Disks(ctx, a.o.System)
}

// imagerHardware implements [imaging.Hardware].
type imagerHardware struct{ a *agent }

func (h imagerHardware) WaitDisks(ctx context.Context, n *node.Node) error {
	return h.a.managers.Load().WaitDisks(ctx, n)
}

func (h imagerHardware) AssembleVolumes(ctx context.Context, n *node.Node) (softraid.Assembled, error) {
	return h.a.builtin.AssembleVolumes(ctx, n)
}

func (h imagerHardware) ReleaseVolumes(ctx context.Context, volumes softraid.Assembled, except string) error {
	return volumes.Release(ctx, except)
}

// SetNode implements [extension.Standalone].
func (a *agent) SetNode(data json.RawMessage) error {
	var answer struct {
		Node   *node.Node          `json:"node"`
		Config ironic.LookupConfig `json:"config"`
	}
	if err := json.Unmarshal(data, &answer); err != nil {
		return err
	}
	if answer.Node == nil {
		return errors.New("node missing")
	}
	a.apply(&ironic.Answer{Node: answer.Node, Config: answer.Config}, "")
	a.o.Board.Node(answer.Node.UUID(), answer.Node.Name())
	return nil
}
