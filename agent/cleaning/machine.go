package cleaning

import (
	"context"
	"log/slog"
	"net"
	"time"

	"ironroot/agent/config"
	"ironroot/agent/journal"
	"ironroot/agent/node"
	"ironroot/agent/softraid"
	"ironroot/agent/status"
	"ironroot/storage/block"
	"ironroot/storage/sysfs"
)

// Options are the options of [Steps].
type Options struct {
	Config *config.Live
	System sysfs.Root
	// Disks lists the disks that all managers together report.
	Disks block.Lister
	Log   *slog.Logger
	// Journal keeps the evidence of erases for the log archive; nil keeps none.
	Journal *journal.Journal
	Version string // of the program, in the evidence
	// Dialer connects to erase_evidence_url; nil is a net.Dialer.
	Dialer Dialer
	// Board shows the plan and the progress of work on devices.
	Board status.Trackers
	// Settled is closed when the drivers of all devices present at boot are loaded; nil means that they are.
	Settled <-chan struct{}
	Kernel  softraid.Kernel // nil means this machine's
}

// Dialer connects to servers: see [net.Dialer].
type Dialer interface {
	DialContext(ctx context.Context, network, address string) (net.Conn, error)
}

// Steps runs the steps on the disks of a machine.
type Steps struct {
	o Options

	eraser    eraser
	prober    prober
	tester    tester
	limiter   limiter
	postPause time.Duration
}

// New returns the steps on the disks of a machine.
func New(o Options) *Steps {
	this := thisMachine{o.System}
	return &Steps{o: o, eraser: this, prober: this, tester: this, limiter: this, postPause: postPause}
}

// List implements [softraid.Disks].
func (m *Steps) List(ctx context.Context) ([]block.Device, error) { return m.o.Disks.Disks(ctx) }

// raid returns the software RAID of this machine for a node, which may be nil. It creates no arrays.
func (m *Steps) raid(n *node.Node) *softraid.Arrays {
	c := m.o.Config.Get()
	return softraid.New(softraid.Options{
		Node: n, System: m.o.System, Disks: m, Kernel: m.o.Kernel, Log: m.o.Log, Limits: m.limiter.Limits,
		Guard: Guards(n, c), Wait: WaitOf(c),
	})
}

// track shows the progress of work on a device.
func (m *Steps) track(what, device string) status.Tracker {
	return m.o.Board.Track(m.o.Log, what, device)
}

// trackAside is track for work that is no part of the progress of the step, such as reading back.
func (m *Steps) trackAside(what, device string) status.Tracker {
	return m.o.Board.TrackAside(m.o.Log, what, device)
}
