package qemu

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// Machine is a virtual machine that runs or has ended.
type Machine struct {
	config  Config
	console *Console
	qmp     *client
	process *os.Process
	done    chan struct{} // closed when QEMU has exited
	err     error         // QEMU's exit error; valid after done
	cancel  context.CancelCauseFunc
	stopped chan struct{} // closed when the console was read to its end
}

// Start starts a machine. It runs until the guest ends it, Stop is called, or ctx ends, which kills it. The machine's
// files stay in Config.Dir.
func Start(ctx context.Context, c Config) (*Machine, error) {
	c = withDefaults(c)
	m, err := start(ctx, c)
	if err != nil {
		return nil, fmt.Errorf("start %s: %w", c.Name, err)
	}
	return m, nil
}

func withDefaults(c Config) Config {
	if c.Name == "" {
		c.Name = "machine"
	}
	if c.Memory == 0 {
		c.Memory = 1 << 30
	}
	if c.CPUs == 0 {
		c.CPUs = 2
	}
	if c.Firmware == "" {
		c.Firmware = BIOS
	}
	return c
}

func start(ctx context.Context, c Config) (*Machine, error) {
	if c.Dir == "" {
		return nil, errors.New("no directory given for the machine's files")
	}
	if err := prepareFiles(c); err != nil {
		return nil, err
	}
	args, err := arguments(c)
	if err != nil {
		return nil, err
	}
	consoleHere, consoleThere, err := socketPair("console")
	if err != nil {
		return nil, err
	}
	monitorHere, monitorThere, err := socketPair("qmp")
	if err != nil {
		return nil, errors.Join(err, consoleHere.Close(), consoleThere.Close())
	}

	ctx, cancel := context.WithCancelCause(ctx)
	m := &Machine{
		config: c, cancel: cancel, done: make(chan struct{}), stopped: make(chan struct{}),
		console: newConsole(consoleHere, c.Lines), qmp: newClient(monitorHere),
	}
	err = m.launch(ctx, args, consoleThere, monitorThere)
	// QEMU must hold the only open copies of its ends; otherwise its exit would not close the connections.
	err = errors.Join(err, consoleThere.Close(), monitorThere.Close())
	if err != nil {
		cancel(err)
		return nil, errors.Join(err, consoleHere.Close(), monitorHere.Close())
	}
	go m.readConsole(consoleHere)
	go m.qmp.read()
	if err := m.qmp.negotiate(ctx); err != nil {
		err = m.explain(err)
		return nil, errors.Join(err, m.Stop())
	}
	if _, err := m.QMP(ctx, "cont", nil); err != nil {
		return nil, errors.Join(err, m.Stop())
	}
	return m, nil
}

// launch starts QEMU from its own thread, which lives as long as QEMU. The kernel kills QEMU when this thread ends,
// so no machine outlives the program that started it.
func (m *Machine) launch(ctx context.Context, args []string, extra ...*os.File) error {
	messages, err := os.Create(m.path("qemu.log"))
	if err != nil {
		return err
	}
	started := make(chan error, 1)
	go func() {
		defer messages.Close() //nolint:errcheck // QEMU wrote, not this process
		runtime.LockOSThread()
		if m.config.NetNS == "" {
			defer runtime.UnlockOSThread() // a thread that changed its namespace must end with its goroutine
		} else if err := enterNetNS(m.config.NetNS); err != nil {
			started <- err
			return
		}
		program, pkg := "qemu-system-x86_64", "qemu-system-x86"
		if m.config.Arch == "arm64" {
			program, pkg = "qemu-system-aarch64", "qemu-system-arm"
		}
		cmd := exec.CommandContext(ctx, program, args...)
		cmd.Stdout, cmd.Stderr, cmd.ExtraFiles = messages, messages, extra
		cmd.SysProcAttr = endWithThread()
		if err := cmd.Start(); err != nil {
			started <- fmt.Errorf("%w (Debian's package is %s)", err, pkg)
			return
		}
		m.process = cmd.Process
		started <- nil
		m.err = cmd.Wait()
		close(m.done)
	}()
	return <-started
}

func (m *Machine) readConsole(from net.Conn) {
	defer close(m.stopped)
	defer from.Close() //nolint:errcheck // nothing more comes
	var to io.Writer = m.console
	file, err := os.Create(m.path("console.log"))
	if err == nil {
		defer file.Close() //nolint:errcheck // a copy of what the Console holds
		to = io.MultiWriter(file, m.console)
	}
	_, _ = io.Copy(to, from) // the copy ends when QEMU exits; Wait returns the result
	m.console.end()
}

// Console returns the serial console.
func (m *Machine) Console() *Console { return m.console }

// Pid returns the process ID of QEMU.
func (m *Machine) Pid() int { return m.process.Pid }

// Dir returns the directory of the machine's files: console.log, qemu.log and, with UEFI, vars.fd.
func (m *Machine) Dir() string { return m.config.Dir }

func (m *Machine) path(name string) string { return filepath.Join(m.config.Dir, name) }

// Running reports whether QEMU is running.
func (m *Machine) Running() bool {
	select {
	case <-m.done:
		return false
	default:
		return true
	}
}

// Wait waits until QEMU exits: at the guest's power-off, or at its restart if OnReboot is Shutdown. If QEMU failed,
// the error contains its messages.
func (m *Machine) Wait(ctx context.Context) error {
	select {
	case <-m.done:
	case <-ctx.Done():
		return fmt.Errorf("waiting for %s to end: %w", m.config.Name, context.Cause(ctx))
	}
	<-m.stopped
	if m.err != nil {
		return m.explain(fmt.Errorf("%s: %w", m.config.Name, m.err))
	}
	return nil
}

// Stop ends the machine at once, like a power cut, and waits until QEMU has exited. It may be called more than once.
func (m *Machine) Stop() error {
	if m.Running() {
		ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
		defer cancel()
		// quit makes QEMU write out its images. If QEMU does not respond, it is killed below.
		_, quitErr := m.qmp.execute(ctx, "quit", nil)
		select {
		case <-m.done:
		case <-ctx.Done():
			m.cancel(errors.Join(errors.New("stopped"), quitErr))
		}
	}
	<-m.done
	m.cancel(errors.New("stopped"))
	<-m.stopped
	return nil
}

// Reset restarts the machine, like the reset button.
func (m *Machine) Reset(ctx context.Context) error {
	_, err := m.QMP(ctx, "system_reset", nil)
	return err
}

// PowerOff presses the power button, which requests a shutdown from the guest by ACPI.
func (m *Machine) PowerOff(ctx context.Context) error {
	_, err := m.QMP(ctx, "system_powerdown", nil)
	return err
}

// PowerOn starts the machine again after its guest switched it off. Config.OnPowerOff must be Pause.
func (m *Machine) PowerOn(ctx context.Context) error {
	if err := m.Reset(ctx); err != nil {
		return err
	}
	_, err := m.QMP(ctx, "cont", nil)
	return err
}

// SetBoot sets the boot order of a device ("disk0", "nic0", "cdrom") for the next reset and later ones. 1 is first;
// -1 removes the device from the order.
func (m *Machine) SetBoot(ctx context.Context, device string, order int) error {
	_, err := m.QMP(ctx, "qom-set",
		map[string]any{"path": "/machine/peripheral/" + device, "property": "bootindex", "value": order})
	return err
}

// QMP executes a QMP command and returns its result.
func (m *Machine) QMP(ctx context.Context, command string, arguments any) (json.RawMessage, error) {
	result, err := m.qmp.execute(ctx, command, arguments)
	if err != nil {
		return nil, fmt.Errorf("%s: qmp %s: %w", m.config.Name, command, err)
	}
	return result, nil
}

// hostForward matches a line of QEMU's description of its own network.
var hostForward = regexp.MustCompile(`TCP\[HOST_FORWARD\] +\d+ +127\.0\.0\.1 +(\d+) +\S+ +(\d+) `)

// DialForwarded connects to a port of the guest through its forwarded port.
func (m *Machine) DialForwarded(ctx context.Context, network string, guest int) (net.Conn, error) {
	port, err := m.Forwarded(ctx, guest)
	if err != nil {
		return nil, err
	}
	return (&net.Dialer{}).DialContext(ctx, network, fmt.Sprintf("127.0.0.1:%d", port))
}

// Forwarded returns the port of 127.0.0.1 that is forwarded to a port of the guest. QEMU listens on it since Start has
// returned.
func (m *Machine) Forwarded(ctx context.Context, guest int) (port int, err error) {
	result, err := m.QMP(ctx, "human-monitor-command", map[string]any{"command-line": "info usernet"})
	if err != nil {
		return 0, err
	}
	var text string
	if err := json.Unmarshal(result, &text); err != nil {
		return 0, fmt.Errorf("%s: info usernet: %w", m.config.Name, err)
	}
	for _, groups := range hostForward.FindAllStringSubmatch(text, -1) {
		if groups[2] == strconv.Itoa(guest) {
			return strconv.Atoi(groups[1])
		}
	}
	return 0, fmt.Errorf("%s: no port is forwarded to port %d of the guest: %s", m.config.Name, guest, text)
}

// Events returns the machine's events since its start. The channel is closed when ctx ends or QEMU exits.
func (m *Machine) Events(ctx context.Context) <-chan Event { return m.qmp.events(ctx) }

// WaitEvent waits until the named event has occurred n times since the machine's start, and returns the last
// occurrence.
func (m *Machine) WaitEvent(ctx context.Context, name string, n int) (Event, error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	for e := range m.Events(ctx) {
		if e.Name != name {
			continue
		}
		if n--; n <= 0 {
			return e, nil
		}
	}
	if err := ctx.Err(); err != nil {
		return Event{}, fmt.Errorf("%s: waiting for event %s: %w", m.config.Name, name, context.Cause(ctx))
	}
	return Event{}, fmt.Errorf("%s ended before event %s", m.config.Name, name)
}

// explain adds QEMU's own messages to the error.
func (m *Machine) explain(err error) error {
	text, readErr := os.ReadFile(m.path("qemu.log"))
	if readErr != nil || len(text) == 0 {
		return err
	}
	return fmt.Errorf("%w: %s", err, strings.TrimSpace(string(text[max(0, len(text)-2000):])))
}

// sendBuffer is the number of bytes that QEMU can write while nobody reads. The memory is allocated only when it is
// used.
const sendBuffer = 16 << 20

// socketPair returns a connected pair of sockets: one for this process, one for QEMU. Unlike a named socket, it
// exists before QEMU starts, and its name has no length limit.
func socketPair(name string) (net.Conn, *os.File, error) {
	fds, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|closeOnExec, 0)
	if err != nil {
		return nil, nil, fmt.Errorf("socket pair for %s: %w", name, err)
	}
	here, there := os.NewFile(uintptr(fds[0]), name), os.NewFile(uintptr(fds[1]), name)
	// A serial port sends single bytes, and each takes most of a KiB of the buffer: the default size holds 277. When
	// the buffer is full, firmware and kernel do not wait, and their output is lost. Only root may exceed the
	// system's limit.
	if forceSendBuffer(fds[1], sendBuffer) != nil {
		_ = unix.SetsockoptInt(fds[1], unix.SOL_SOCKET, unix.SO_SNDBUF, sendBuffer) // capped at the limit
	}
	defer here.Close() //nolint:errcheck // conn is its duplicate
	conn, err := net.FileConn(here)
	if err != nil {
		return nil, nil, errors.Join(fmt.Errorf("socket pair for %s: %w", name, err), there.Close())
	}
	return conn, there, nil
}
