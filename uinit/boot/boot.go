package boot

import (
	"context"
	"errors"
	"log"
	"log/slog"
	"os"
	"path/filepath"
	"runtime"
	"sync/atomic"
	"time"

	"ironroot/agent/config"
	"ironroot/agent/journal"
	"ironroot/agent/status"
	"ironroot/storage/bootloader/chroot"
	"ironroot/uinit/kmod"

	"golang.org/x/sys/unix"
)

// restartDelay is how long the work rests after an error before it is run again.
const restartDelay = 30 * time.Second

// panicPause is how long a goroutine rests after a panic before its function is called again.
const panicPause = time.Second

// journalSize bounds the log kept in memory, in bytes.
const journalSize = 15 << 20

// hostname of the ramdisk until a DHCP server knows better.
const hostname = "ironroot"

// Machine is what boot hands to the function it runs: the started machine.
type Machine struct {
	Params  config.Params // kernel parameters, last one wins
	Journal *journal.Journal
	Log     *slog.Logger
	// Settled is closed once no module is waiting to be loaded for a device that was there at boot. Drivers may still
	// be looking for disks then; those announce themselves by kernel events.
	Settled <-chan struct{}
	// Show draws the board on the machine's screen, if it is one of the consoles, from now on in place of log lines.
	Show func(ctx context.Context, board *status.Board)
	// Probe loads a module by its name or alias, with what it needs.
	Probe func(ctx context.Context, name string) error
	// Adapters returns the network adapters that lack a module.
	Adapters func() ([]kmod.Adapter, error)
	// Flush waits until the log is written to all consoles, at most for flushTime.
	Flush func()
}

// Func is the work of the ramdisk. It should not return: after an error it is run again, after nil the machine idles.
type Func func(ctx context.Context, m *Machine) error

// Options of Run. The zero value is right for the ramdisk.
type Options struct {
	RestartDelay time.Duration // pause after an error of the work; 0 = 30 seconds
}

// The main goroutine stays on the main thread, which starts no programs: that is how reap tells orphans, which the
// kernel gives to this thread, from children that another goroutine waits for.
func init() { runtime.LockOSThread() }

// Main boots the machine and runs f. It never returns. It must be called from the main goroutine.
func Main(f Func) { Run(f, Options{}) }

// Run is Main with options.
func Run(f Func, o Options) {
	if filepath.Base(os.Args[0]) == "modprobe" {
		modprobe(os.Args[1:])
	}
	if filepath.Base(os.Args[0]) == witnessName {
		witness(os.Stdin, os.Args[1:], witnessPatience)
		os.Exit(0)
	}
	if os.Args[0] == chroot.Name { // before process 1: it is that in namespaces of its own
		chroot.Child(os.Args[1:])
	}
	if os.Getpid() != 1 {
		_, _ = os.Stderr.WriteString("init: runs as process 1 of the ramdisk only\n")
		os.Exit(1)
	}
	if o.RestartDelay == 0 {
		o.RestartDelay = restartDelay
	}
	// Arguments are not looked at: some boot loaders hand the kernel's own name to init.
	b := &boot{options: o}
	b.up()
	ctx := b.signals(context.Background())
	b.start(ctx, f)
	reap(ctx, b.log)
	select {} // the signal's handler stops the machine
}

// modprobe serves the kernel's own requests for modules and exits. The kernel ignores the status, people may not.
func modprobe(args []string) {
	if err := kmod.Modprobe(context.Background(), args); err != nil {
		_, _ = os.Stderr.WriteString("modprobe: " + err.Error() + "\n")
		os.Exit(1)
	}
	os.Exit(0)
}

// boot is the state of a starting machine.
type boot struct {
	options Options
	cmdline string
	params  config.Params
	console *Console
	journal *journal.Journal
	log     *slog.Logger
	board   atomic.Pointer[status.Board] // nil before the screen is shown
}

// up does what the rest stands on, one thing after another; all of it is quick.
func (b *boot) up() {
	failed := mountAll()
	cmdline, err := os.ReadFile("/proc/cmdline")
	if err != nil {
		failed = append(failed, err)
	}
	b.cmdline = string(cmdline)
	b.params = config.ParseCmdline(b.cmdline)
	active, err := os.ReadFile("/sys/class/tty/console/active")
	if err != nil {
		failed = append(failed, err)
	}
	b.console = OpenConsole("/dev", consoleNames(b.cmdline, string(active)))
	b.journal = journal.New(b.console, new(slog.LevelVar), journalSize)
	b.log = b.journal.Logger()
	slog.SetDefault(b.log)
	log.SetOutput(unquoted{log.Writer()})
	defer b.guard("boot")
	b.crashOutput()
	b.restrictKernel()
	b.quietKernel()
	b.welcome()
	for _, err := range failed {
		b.log.Error("the root file system is not complete", "err", err)
	}
	b.checkArchive()
	b.limitMemory()
	if err := raiseDescriptors(); err != nil {
		b.log.Warn("limit of open files not raised", "err", err)
	}
	if err := errors.Join(unix.Sethostname([]byte(hostname)), loopbackUp()); err != nil {
		b.log.Warn("host name and loopback", "err", err)
	}
	if err := cleanEnvironment(); err != nil {
		b.log.Warn("environment", "err", err)
	}
}

// start starts everything that runs concurrently.
func (b *boot) start(ctx context.Context, f Func) {
	m := &Machine{Params: b.params, Journal: b.journal, Log: b.log, Show: b.show, Flush: b.flush}
	loader, settled := b.modules(ctx)
	m.Settled, m.Probe = settled, loader.Load
	m.Adapters = func() ([]kmod.Adapter, error) { return loader.Adapters("/sys") }
	b.spawn(func() { b.watchRandom() })
	keep(ctx, func() { b.watchFirmware(ctx, settled) })
	b.spawn(func() { b.late(ctx, settled) })
	b.spawnGuarded(func() { b.work(ctx, m, f) })
}

// show draws the board on the machine's screens.
func (b *boot) show(ctx context.Context, board *status.Board) {
	b.board.Store(board)
	b.console.Show(ctx, board)
	keep(ctx, func() { watchKernel(ctx, b.console) })
}

// modules starts loading modules.
func (b *boot) modules(ctx context.Context) (*kmod.Loader, <-chan struct{}) {
	loader, err := kmod.OpenMachine(b.log)
	if err != nil {
		b.log.Error("modules", "err", err)
		loader = kmod.None(b.log)
	}
	plug := kmod.NewColdplug(loader, "/sys", b.log)
	keep(ctx, func() {
		if err := plug.Run(ctx); err != nil && ctx.Err() == nil {
			b.log.Error("devices that are plugged in from now on get no driver", "err", err)
		}
	})
	return loader, plug.Settled()
}

// late does what waits for devices and what nobody waits for.
func (b *boot) late(ctx context.Context, settled <-chan struct{}) {
	mountLate(b.log)
	select {
	case <-settled:
		b.log.Info("modules are loaded", "uptime", uptime())
		b.console.Retry() // a console may have come with its driver
	case <-ctx.Done():
		return
	}
	b.shell(ctx)
}

// work runs f forever.
func (b *boot) work(ctx context.Context, m *Machine, f Func) {
	for ctx.Err() == nil {
		b.log.Info("starting", "uptime", uptime())
		err := f(ctx, m)
		if ctx.Err() != nil {
			return
		}
		if err == nil {
			b.log.Info("finished; the machine stays as it is")
			return
		}
		b.log.Error("ended, starting again", "after", b.options.RestartDelay, "err", err)
		select {
		case <-time.After(b.options.RestartDelay):
		case <-ctx.Done():
		}
	}
}

// uptime returns the time since the kernel started.
func uptime() time.Duration {
	var t unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_BOOTTIME, &t); err != nil {
		return 0
	}
	return time.Duration(t.Nano()).Round(10 * time.Millisecond)
}
