//go:build linux

package boot

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"path/filepath"
	"runtime/debug"
	"slices"
	"time"

	"golang.org/x/sys/unix"

	"ironroot/internal/goroutine"
)

// crashReporterName is the name of this program in the process that shows a panic of process 1.
const crashReporterName = "crash-reporter"

// crashReporterTimeout limits the time in which a terminal must accept one message. After that it gets no more.
const crashReporterTimeout = 5 * time.Second

// startCrashReporter starts a process that shows the stack of a panic on all terminals when a panic that no guard
// caught ends this process. At that moment only the Go runtime runs here. It calls write(2) and exits, and the kernel
// panics: data that a serial port has not sent is lost, and a port that does not accept data would block the restart.
// Therefore the runtime writes to a pipe, and the crash reporter at its other end waits for the terminals, with a
// limit.
//
// The pipe contains one message at a time (O_DIRECT, see pipe(2)): the next is read only when the last is on the
// terminals.
func (b *boot) startCrashReporter() error {
	var ends [2]int
	if err := unix.Pipe2(ends[:], unix.O_CLOEXEC|unix.O_DIRECT); err != nil {
		return fmt.Errorf("pipe: %w", err)
	}
	in, out := os.NewFile(uintptr(ends[0]), "panics"), os.NewFile(uintptr(ends[1]), "panics")
	defer in.Close()  //nolint:errcheck // the process has its own
	defer out.Close() //nolint:errcheck // standard error is its copy
	if _, err := unix.FcntlInt(out.Fd(), unix.F_SETPIPE_SZ, os.Getpagesize()); err != nil {
		return fmt.Errorf("limit size of pipe: %w", err)
	}
	null, err := os.OpenFile(os.DevNull, os.O_RDWR, 0)
	if err != nil {
		return err
	}
	defer null.Close() //nolint:errcheck // the process has its own
	arguments := append([]string{crashReporterName}, b.console.Paths()...)
	process, err := os.StartProcess("/proc/self/exe", arguments, &os.ProcAttr{
		Dir: "/", Files: []*os.File{in, null, null},
		Env: []string{"GOMAXPROCS=1"}, // it runs one goroutine at a time
	})
	if err != nil {
		return err
	}
	b.spawn(func() {
		state, err := process.Wait()
		if b.leaving.Load() {
			return
		}
		err = errors.Join(err, fmt.Errorf("%s ended: %v", crashReporterName, state))
		b.log.Warn("crash reporter ended: panics are shown on one console only", "err", err)
	})
	if err := unix.Dup3(int(out.Fd()), int(os.Stderr.Fd()), 0); err != nil {
		return fmt.Errorf("redirect standard error: %w", err)
	}
	return debug.SetCrashOutput(nil, debug.CrashOptions{}) // otherwise the runtime also writes to one terminal
}

// crashReporterChild does the work of the crash reporter, if this process is it.
func crashReporterChild() {
	if filepath.Base(os.Args[0]) != crashReporterName {
		return
	}
	reportCrash(os.Stdin, os.Args[1:], crashReporterTimeout)
	os.Exit(0)
}

// reportCrash shows the messages from in on the terminals until in is closed.
func reportCrash(in io.Reader, paths []string, limit time.Duration) {
	signal.Ignore(unix.SIGHUP, unix.SIGINT, unix.SIGTERM, unix.SIGPIPE, unix.SIGQUIT, unix.SIGUSR2)
	message := make([]byte, os.Getpagesize())
	var terminals []*crashTerminal
	for {
		n, err := in.Read(message)
		if err != nil {
			return
		}
		if terminals == nil { // not earlier: a terminal could be hung up before it is needed
			for _, path := range paths {
				terminals = append(terminals, openCrashTerminal(path))
			}
		}
		ctx, cancel := context.WithTimeout(context.Background(), limit)
		for _, t := range terminals {
			t.begin(message[:n])
		}
		for _, t := range terminals {
			t.await(ctx)
		}
		cancel()
	}
}

// crashTerminal is a terminal of the crash reporter.
type crashTerminal struct {
	messages chan []byte
	shown    chan struct{} // one for each message
	failed   bool          // it did not accept a message in time, or cannot be opened: it gets no more
}

func openCrashTerminal(path string) *crashTerminal {
	t := &crashTerminal{messages: make(chan []byte, 1), shown: make(chan struct{}, 1)}
	fd, err := unix.Open(path, unix.O_WRONLY|unix.O_NOCTTY|unix.O_NONBLOCK|unix.O_CLOEXEC, 0)
	if err == nil {
		err = unix.SetNonblock(fd, false) // open(2) must not block, write(2) must
	}
	if err != nil {
		t.failed = true
		return t
	}
	goroutine.Go(func() error {
		t.run(fd, isVirtualTerminal(filepath.Base(path)))
		return nil
	}, nil) // a terminal that fails gets no more messages
	return t
}

func (t *crashTerminal) run(fd int, virtual bool) {
	if virtual {
		_ = writeAll(fd, []byte("\x1b[0m\n")) // below the screen, without its colours
	}
	for message := range t.messages {
		if writeAll(fd, message) != nil {
			return // failed is set
		}
		const drain = 1 // tcdrain(3): otherwise the kernel panics before the port has sent the data
		_ = unix.IoctlSetInt(fd, unix.TCSBRK, drain)
		t.shown <- struct{}{}
	}
}

func writeAll(fd int, p []byte) error {
	for len(p) > 0 {
		n, err := unix.Write(fd, p)
		if err != nil && !errors.Is(err, unix.EINTR) {
			return err
		}
		p = p[max(n, 0):]
	}
	return nil
}

func (t *crashTerminal) begin(message []byte) {
	if !t.failed {
		t.messages <- slices.Clone(message)
	}
}

// await waits until the message is shown or ctx ends.
func (t *crashTerminal) await(ctx context.Context) {
	if t.failed {
		return
	}
	select {
	case <-t.shown:
		return
	case <-ctx.Done():
	}
	select { // another terminal can have used up the time, although this one was quick
	case <-t.shown:
	default:
		t.failed = true
	}
}
