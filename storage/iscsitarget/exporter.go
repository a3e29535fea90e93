package iscsitarget

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/netip"
	"os"
	"regexp"
	"slices"
	"strings"
	"sync"
	"time"

	"ironroot/internal/goroutine"
	"ironroot/internal/pause"
	"ironroot/storage/block"
	"ironroot/storage/iscsi"
	"ironroot/storage/sysfs"
)

const (
	// defaultIdle is the time after which a target without a session is removed.
	defaultIdle = 5 * time.Minute
	// sessionInterval is the time between two checks for sessions: the kernel does not report them.
	sessionInterval = time.Second
	// logoutTimeout limits the wait for the end of sessions. The kernel ends one after it has answered the logout.
	logoutTimeout = 10 * time.Second
	logoutPause   = 100 * time.Millisecond
)

// ErrExists is returned if there is a target already.
var ErrExists = errors.New("an iSCSI target exists already")

// conductorName matches the names that Ironic chose for targets before version 4.0. They are not iSCSI names, but the
// kernel's target and open-iscsi use any text.
var conductorName = regexp.MustCompile(`^iqn-[0-9A-Fa-f]{8}(-[0-9A-Fa-f]{4}){3}-[0-9A-Fa-f]{12}$`)

// CheckName returns an error unless a text can be the name of a target: an iSCSI name without a slash, or "iqn-" and a
// UUID, as Ironic before version 4.0 sends.
func CheckName(name string) error {
	if conductorName.MatchString(name) {
		return nil
	}
	if err := iscsi.CheckName(name); err != nil {
		return err
	}
	if strings.Contains(name, "/") { // it is the name of a directory
		return fmt.Errorf("got iSCSI name %.80q, want one without /", name)
	}
	return nil
}

// Export describes a target.
type Export struct {
	Name   string         // see CheckName
	Device string         // path of the block device
	Portal netip.AddrPort // of this machine, where initiators connect
	Peer   netip.Addr     // the only address that can connect to the portal
}

func (e Export) String() string {
	return fmt.Sprintf("%s (%s at %s for %s)", e.Name, e.Device, e.Portal, e.Peer)
}

// check returns an error unless the kernel can be configured with e.
func (e Export) check() error {
	if err := CheckName(e.Name); err != nil {
		return err
	}
	local := e.Portal.Addr()
	switch {
	case !local.IsValid() || local.IsUnspecified() || local.Is4In6() || e.Portal.Port() == 0:
		return fmt.Errorf("got portal %s, want an address and a port", e.Portal)
	case !e.Peer.IsValid() || e.Peer.IsUnspecified() || e.Peer.Is4In6() || e.Peer.Is4() != local.Is4():
		return fmt.Errorf("got peer %s of the portal %s, want an address of the same family", e.Peer, e.Portal)
	}
	return nil
}

// SessionError means that initiators were logged in to a target when it was to be removed.
type SessionError struct {
	Target     string
	Initiators []string
}

func (e *SessionError) Error() string {
	return fmt.Sprintf("iSCSI target %s in use, logged in: %s", e.Target, strings.Join(e.Initiators, ", "))
}

// Exporter exports at most one device at a time. It is safe for concurrent use. The zero value is for a machine whose
// modules are loaded.
type Exporter struct {
	System  sysfs.Root
	Modules Modules // may be nil
	// Idle is the time after which a target without a session is removed; 0 is five minutes.
	Idle time.Duration
	Log  *slog.Logger

	files  files  // nil: the kernel's
	kernel kernel // nil: systemKernel

	mu         sync.Mutex
	current    *target
	incomplete error // why what initiators wrote to the last device may be incomplete
}

// Modules are the modules of the kernel.
type Modules interface {
	Load(ctx context.Context, name string) error
}

// kernel is the rest of the kernel, which a target needs.
type kernel interface {
	// mount mounts configfs.
	mount(dir string) error
	// checkPortal returns an error if the address does not belong to this machine, or the port is in use.
	checkPortal(ctx context.Context, portal netip.AddrPort) error
	// restrict limits a portal to connections of one peer.
	restrict(portal netip.AddrPort, peer netip.Addr) (restriction, error)
	// checkFree flushes the device, drops what the kernel has cached of it, and checks that it can be opened
	// exclusively.
	checkFree(ctx context.Context, device string) error
}

// systemKernel is the kernel of this machine.
type systemKernel struct{}

// restriction is a restriction of who can connect.
type restriction interface {
	// lift ends the restriction.
	lift() error
}

// target is a target, or what a failed removal has left of one.
type target struct {
	Export
	tree   tree
	access restriction
	stop   context.CancelFunc // ends the watch
}

// Start exports a device and returns once initiators can log in. If e exports x already, it removes that target first,
// unless an initiator is still logged in after ten seconds. Such an initiator, and any other target, is an error that
// wraps ErrExists. prepare, when set, is called before the kernel opens the device, after everything else was checked.
func (e *Exporter) Start(ctx context.Context, x Export, prepare func(context.Context) error) error {
	if err := e.start(ctx, x, prepare); err != nil {
		return fmt.Errorf("export %s: %w", x, err)
	}
	return nil
}

func (e *Exporter) start(ctx context.Context, x Export, prepare func(context.Context) error) error {
	if err := x.check(); err != nil {
		return err
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	if err := e.replace(ctx, x); err != nil {
		return err
	}
	if err := e.loadModules(ctx); err != nil {
		return err
	}
	t := &target{Export: x, tree: tree{files: e.filesystem(), root: e.System.Sys("kernel/config/target"), Export: x}}
	if err := e.findConfig(t.tree.root); err != nil {
		return fmt.Errorf("kernel has no iSCSI target (module group target): %w", err)
	}
	if err := t.tree.checkAbsent(); err != nil {
		return err
	}
	if err := e.system().checkPortal(ctx, x.Portal); err != nil {
		return err
	}
	if prepare != nil {
		if err := prepare(ctx); err != nil {
			return err
		}
	}
	e.current, e.incomplete = t, nil
	if err := e.create(t); err != nil {
		return errors.Join(err, e.remove(context.WithoutCancel(ctx)))
	}
	watching, stop := context.WithCancel(context.Background())
	t.stop = stop
	goroutine.Go(func() error { return e.watch(watching, t) }, func(err error) {
		if err != nil {
			e.logger().Error("iSCSI target not watched", "target", t.Name, "err", err)
		}
	})
	e.logger().Info("iSCSI target started", "target", x.Name, "device", x.Device, "portal", x.Portal, "peer", x.Peer)
	return nil
}

// replace removes the current target if it is x without a session.
func (e *Exporter) replace(ctx context.Context, x Export) error {
	if e.current == nil {
		return nil
	}
	if e.current.Export != x {
		return fmt.Errorf("%w: %s", ErrExists, e.current)
	}
	if err := e.awaitLogout(ctx, e.current); err != nil {
		return fmt.Errorf("%w: %w", ErrExists, err)
	}
	return e.remove(ctx)
}

func (e *Exporter) loadModules(ctx context.Context) error {
	if e.Modules == nil {
		return nil
	}
	for _, name := range []string{"target_core_mod", "target_core_iblock", "iscsi_target_mod"} {
		if err := e.Modules.Load(ctx, name); err != nil {
			return fmt.Errorf("load module %s: %w", name, err)
		}
	}
	return nil
}

// findConfig returns an error unless the directory root of configfs exists. It mounts configfs if need be: its own
// module may not have been loaded before the target's.
func (e *Exporter) findConfig(root string) error {
	if _, err := os.Stat(root); err == nil {
		return nil
	}
	if err := e.system().mount(e.System.Sys("kernel/config")); err != nil {
		return err
	}
	_, err := os.Stat(root)
	return err
}

// checkPortal listens at the portal, because the kernel's target would name no reason.
func (systemKernel) checkPortal(ctx context.Context, portal netip.AddrPort) error {
	listener, err := (&net.ListenConfig{}).Listen(ctx, "tcp", portal.String())
	if err != nil {
		return fmt.Errorf("portal: %w", err)
	}
	return listener.Close()
}

// create configures the kernel. Nobody can connect before the restriction is in force.
func (e *Exporter) create(t *target) error {
	var err error
	if t.access, err = e.system().restrict(t.Portal, t.Peer); err != nil {
		return err
	}
	return t.tree.create()
}

// Device returns the exported device, or "" if there is no target.
func (e *Exporter) Device() string {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.current == nil {
		return ""
	}
	return e.current.Device
}

// Stop removes the target, if there is one. It waits ten seconds for initiators to log out. Then it removes the target
// in any case, and returns a *SessionError if it has ended a session. Afterwards the device is free, and all that
// initiators wrote is on its medium; otherwise Stop returns an error. It returns the same error again, also the error
// of a removal as unused, until Forget is called or another target is started.
func (e *Exporter) Stop(ctx context.Context) error {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.current == nil {
		return e.incomplete
	}
	if err := e.awaitLogout(ctx, e.current); err != nil {
		e.incomplete = err
	}
	if err := e.remove(ctx); err != nil && e.current != nil {
		return errors.Join(e.incomplete, err)
	}
	return e.incomplete
}

// Forget forgets why what initiators wrote may be incomplete: the device has another content now.
func (e *Exporter) Forget() {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.incomplete = nil
}

// Close removes the target, if there is one, without waiting for initiators.
func (e *Exporter) Close(ctx context.Context) error {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.current == nil {
		return nil
	}
	return e.remove(ctx)
}

// awaitLogout waits until no initiator is logged in. If one still is after logoutTimeout, it returns a *SessionError,
// or another error if the kernel does not tell.
func (e *Exporter) awaitLogout(ctx context.Context, t *target) error {
	ctx, cancel := context.WithTimeout(ctx, logoutTimeout)
	defer cancel()
	for {
		sessions, err := t.tree.sessions()
		if err == nil && len(sessions) == 0 {
			return nil
		}
		if pause.For(ctx, logoutPause) == nil {
			continue
		}
		if err != nil {
			return fmt.Errorf("sessions of iSCSI target %s: %w", t.Name, err)
		}
		return &SessionError{Target: t.Name, Initiators: sessions}
	}
}

// remove removes the current target and its restriction, and then checks that the device is free and its content on the
// medium: otherwise it is incomplete. If the target is not removed, it stays the current one and the restriction stays
// in force.
func (e *Exporter) remove(ctx context.Context) error {
	t := e.current
	if err := t.tree.remove(); err != nil {
		return fmt.Errorf("remove iSCSI target %s: %w", t.Name, err)
	}
	if t.access != nil {
		if err := t.access.lift(); err != nil {
			return fmt.Errorf("remove iSCSI target %s: %w", t.Name, err)
		}
	}
	e.current = nil
	if t.stop != nil { // it was started
		t.stop()
	}
	if err := e.system().checkFree(ctx, t.Device); err != nil {
		err = fmt.Errorf("check device %s of the removed iSCSI target %s: %w", t.Device, t.Name, err)
		e.incomplete = errors.Join(e.incomplete, err)
		return err
	}
	if t.stop != nil { // it was started
		e.logger().Info("iSCSI target removed", "target", t.Name, "device", t.Device)
	}
	return nil
}

func (systemKernel) checkFree(ctx context.Context, device string) error {
	if err := block.Flush(ctx, device); err != nil {
		return err
	}
	return block.WhileBusy(ctx, func() error { return openExclusively(device) })
}

// watch logs sessions, and removes the target once it had none for the time e.Idle. If that fails, it tries again after
// the same time. It ends when the target is removed.
func (e *Exporter) watch(ctx context.Context, t *target) error {
	idle := e.Idle
	if idle == 0 {
		idle = defaultIdle
	}
	var before []string
	since := time.Now()
	for pause.For(ctx, min(sessionInterval, idle)) == nil {
		sessions, err := t.tree.sessions()
		if err != nil { // it may be in use
			e.logger().Warn("sessions of iSCSI target not read", "target", t.Name, "err", err)
			since = time.Now()
			continue
		}
		if !slices.Equal(before, sessions) {
			e.logger().Info("sessions of iSCSI target changed", "target", t.Name, "initiators", sessions)
			before = sessions
		}
		if len(sessions) > 0 {
			since = time.Now()
		} else if time.Since(since) >= idle {
			e.logger().Warn("iSCSI target unused, removing it", "target", t.Name, "idle", idle)
			if err := e.removeUnused(ctx, t); err != nil {
				e.logger().Error("removal of an unused iSCSI target failed", "target", t.Name, "err", err)
			}
			since = time.Now()
		}
	}
	return nil
}

// removeUnused removes t, unless it is not the current target any more.
func (e *Exporter) removeUnused(ctx context.Context, t *target) error {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.current != t || ctx.Err() != nil {
		return nil
	}
	return e.remove(context.WithoutCancel(ctx))
}

func (e *Exporter) logger() *slog.Logger {
	if e.Log == nil {
		return slog.New(slog.DiscardHandler)
	}
	return e.Log
}

func (e *Exporter) system() kernel {
	if e.kernel == nil {
		return systemKernel{}
	}
	return e.kernel
}

func (e *Exporter) filesystem() files {
	if e.files == nil {
		return kernelFiles{}
	}
	return e.files
}
