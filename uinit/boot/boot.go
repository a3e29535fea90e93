//go:build linux

package boot

import (
	"context"
	"errors"
	"log"
	"log/slog"
	"os"
	"path/filepath"
	"runtime"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"

	"ironroot/agent"
	"ironroot/agent/clock"
	"ironroot/agent/config"
	"ironroot/agent/container"
	"ironroot/agent/hardware/external"
	"ironroot/agent/journal"
	"ironroot/agent/rescue"
	"ironroot/agent/status"
	"ironroot/internal/pause"
	"ironroot/storage/bootloader/chroot"
	"ironroot/uinit/kmod"
	"ironroot/uinit/login"
	"ironroot/uinit/sshd"
	"ironroot/uinit/sudo"
	"ironroot/uinit/worker"
)

// restartDelay is the pause after an error of the work, before it is run again.
const restartDelay = 30 * time.Second

// panicPause is the pause after a panic in a goroutine, before its function is called again.
const panicPause = time.Second

// journalSize limits the log in memory, in bytes.
const journalSize = 15 << 20

// hostname is the host name until a DHCP server assigns one.
const hostname = "ironroot"

// Machine is the started machine, as the function that Main runs gets it.
type Machine struct {
	Params config.Params // kernel parameters, last one wins; of a signed image, those that are signed
	// Signed means that only the image's own settings are trusted: the firmware has verified the image with its command
	// line, or the state of Secure Boot could not be read.
	Signed  bool
	Journal *journal.Journal
	Log     *slog.Logger
	// Settled is closed when all modules for the devices that were present at boot are loaded. Their drivers can
	// still be searching for disks, which the kernel announces by uevents.
	Settled <-chan struct{}

	modules  modules
	coldplug coldplug
	boot     *boot
}

// modules loads modules. *kmod.Loader implements it.
type modules interface {
	Load(ctx context.Context, name string) error
	Adapters(sys string) ([]kmod.Adapter, error)
}

// coldplug loads the modules of the machine's devices. *kmod.Coldplug implements it.
type coldplug interface {
	Postpone()
	Resume()
}

// Probe loads a module by its name or alias, with its dependencies.
func (m *Machine) Probe(ctx context.Context, name string) error { return m.modules.Load(ctx, name) }

// PrepareRescue prepares a rescue: see [agent.Logins].
func (m *Machine) PrepareRescue(ctx context.Context) error { return m.boot.PrepareRescue(ctx) }

// Flush waits until the log is written to all consoles, at most for flushTimeout.
func (m *Machine) Flush() { m.boot.flush() }

// Func is the work of the ramdisk. It should not return: after an error it is run again, and after nil the machine
// idles.
type Func func(ctx context.Context, m *Machine) error

// uptimePrecision is the unit to which the uptime in log lines is rounded.
const uptimePrecision = 10 * time.Millisecond

// Options are the options of Run. The zero value is for the ramdisk.
type Options struct {
	RestartDelay time.Duration // pause after an error of the work; 0 = 30 seconds
}

// The main goroutine stays on the main thread, which starts no programs. Orphans become children of this thread, so
// that reap can distinguish them from children for which another goroutine waits.
func init() { runtime.LockOSThread() }

// Main boots the machine and runs f. It never returns. It must be called from the main goroutine.
func Main(f Func) { Run(f, Options{}) }

// children are the other roles of this program. Each function does the work of its role and ends the process, if the
// process was started for it, and otherwise returns.
var children = []func(){
	modprobeChild,
	shellChild,
	crashReporterChild,
	worker.Child,
	sshd.Child,
	login.Child,
	sudo.Child,
	// These can be process 1 of their own PID namespace.
	chroot.Child,
	external.Child,
	container.Child,
}

// Run is like Main, with options.
func Run(f Func, o Options) {
	for _, child := range children {
		child()
	}
	if os.Getpid() != 1 {
		_, _ = os.Stderr.WriteString("init: not process 1: it must be the init of a ramdisk\n")
		os.Exit(1)
	}
	if o.RestartDelay == 0 {
		o.RestartDelay = restartDelay
	}
	// Arguments are ignored: some boot loaders pass the kernel's name to init.
	b := &boot{options: o, removal: make(removal, 1)}
	fipsErr := enterFIPS()
	b.up()
	switch {
	case fipsErr != nil:
		f = func(context.Context, *Machine) error { return fipsErr }
	case b.rescued:
		f = b.rescuer()
	}
	ctx := b.signals(context.Background())
	b.start(ctx, f)
	if fipsErr == nil && !b.rescued {
		b.spawn(func() { b.allowOperators(ctx, b.settled) })
	}
	reap(ctx, b.log)
	select {} // the signal handler stops the machine
}

// modprobeChild serves a module request of the kernel. The kernel ignores the exit status, but people see it.
func modprobeChild() {
	if filepath.Base(os.Args[0]) != "modprobe" {
		return
	}
	if err := kmod.Modprobe(context.Background(), os.Args[1:]); err != nil {
		_, _ = os.Stderr.WriteString("modprobe: " + err.Error() + "\n")
		os.Exit(1)
	}
	os.Exit(0)
}

// boot is the state of a starting machine.
type boot struct {
	options  Options
	cmdline  string
	signed   bool // cmdline is part of a signed image
	params   config.Params
	console  *Console
	journal  *journal.Journal
	log      *slog.Logger
	board    atomic.Pointer[status.Board] // nil before the screen is shown
	settled  <-chan struct{}              // see Machine
	logins   logins
	hostKeys atomic.Pointer[[]string] // fingerprints of the SSH server; nil without one
	rescued  bool                     // the machine was handed over to the user of a rescue
	leaving  atomic.Bool              // this program executes itself again
	masking  sync.Once                // of the kernel command line, for a rescue
	maskErr  error                    // of masking
	removal  removal                  // of virtual media, for a rescue
}

// up sets up the basics of the machine, one after another. None of it waits for a device.
func (b *boot) up() {
	b.rescued = rescue.IsMarked("/")
	var failed []error
	if _, err := os.Stat("/sys/class"); err != nil {
		failed = mountAll()
	} else if err := endProcesses(context.Background()); err != nil { // this program has executed itself for a rescue
		failed = append(failed, err)
	}
	cmdline, err := os.ReadFile("/proc/cmdline")
	if err != nil {
		failed = append(failed, err)
	}
	b.cmdline = string(cmdline)
	protection := readProtection("/")
	if protection.signed {
		b.cmdline, b.signed = protection.cmdline, true
	}
	b.params = config.ParseCmdline(b.cmdline)
	active, err := os.ReadFile("/sys/class/tty/console/active")
	if err != nil {
		failed = append(failed, err)
	}
	b.console = OpenConsole("/dev", consoleNames(b.cmdline, string(active)))
	b.journal = journal.New(b.console, new(slog.LevelVar), journalSize)
	agent.RedactCmdline(b.journal, string(cmdline)) // the kernel logs also what a signed image ignores
	agent.RedactCmdline(b.journal, protection.cmdline)
	b.log = b.journal.Logger()
	slog.SetDefault(b.log)
	log.SetOutput(unquoted{log.Writer()})
	defer b.guard("boot")
	b.crashOutput()
	b.restrictKernel()
	b.quietKernel()
	b.welcome()
	for _, err := range failed {
		b.log.Error("root file system incomplete", "err", err)
	}
	protection.report(b.log, string(cmdline))
	b.checkArchive()
	b.limitMemory()
	if err := raiseDescriptors(); err != nil {
		b.log.Warn("limit of open files not raised", "err", err)
	}
	if err := errors.Join(unix.Sethostname([]byte(hostname)), loopbackUp()); err != nil {
		b.log.Warn("host name or loopback not set up", "err", err)
	}
	if err := cleanEnvironment(); err != nil {
		b.log.Warn("environment not cleared", "err", err)
	}
}

// start starts all goroutines.
func (b *boot) start(ctx context.Context, f Func) {
	loader, plug := b.modules(ctx)
	settled := plug.Settled()
	b.settled = settled
	m := &Machine{
		Params: b.params, Signed: b.signed, Journal: b.journal, Log: b.log, Settled: settled, modules: loader,
		coldplug: plug, boot: b,
	}
	b.spawn(func() { b.watchRandom() })
	keep(ctx, func() { b.watchFirmware(ctx, settled) })
	b.spawn(func() { b.finishBoot(ctx, settled) })
	b.spawnGuarded(func() { b.work(ctx, m, f) })
}

// show draws the board on the machine's screen instead of log lines, if the screen is one of the consoles.
func (b *boot) show(ctx context.Context, board *status.Board) {
	b.board.Store(board)
	if keys := b.hostKeys.Load(); keys != nil {
		board.HostKeys(*keys)
	}
	b.console.Show(ctx, board)
	keep(ctx, func() { watchKernel(ctx, b.console) })
}

// modules starts to load the modules of the machine's devices.
func (b *boot) modules(ctx context.Context) (*kmod.Loader, *kmod.Coldplug) {
	loader, err := kmod.OpenMachine(b.log)
	if err != nil {
		b.log.Error("module index not read", "err", err)
		loader = kmod.None(b.log)
	}
	plug := kmod.NewColdplug(loader, "/sys", b.log)
	keep(ctx, func() {
		if err := plug.Run(ctx); err != nil && ctx.Err() == nil {
			b.log.Error("hotplug stopped: new devices get no driver", "err", err)
		}
	})
	return loader, plug
}

// finishBoot runs the steps that nothing depends on, some of them after the devices have settled.
func (b *boot) finishBoot(ctx context.Context, settled <-chan struct{}) {
	mountLate(b.log)
	select {
	case <-settled:
		b.log.Info("modules are loaded", "uptime", clock.Uptime().Round(uptimePrecision))
		b.console.Retry() // a driver can have added a console
	case <-ctx.Done():
		return
	}
	b.shell(ctx)
}

// work runs f forever.
func (b *boot) work(ctx context.Context, m *Machine, f Func) {
	for ctx.Err() == nil {
		b.log.Info("starting", "uptime", clock.Uptime().Round(uptimePrecision))
		err := f(ctx, m)
		if ctx.Err() != nil {
			return
		}
		if err == nil {
			b.log.Info("work finished, machine idle")
			return
		}
		if errors.Is(err, agent.ErrRescue) {
			b.log.Error("rescue failed", "err", b.handOver(ctx))
			b.die("rescue failed")
		}
		b.log.Error("work failed, restarting", "pause", b.options.RestartDelay, "err", err)
		_ = pause.For(ctx, b.options.RestartDelay) // the loop ends with ctx
	}
}
