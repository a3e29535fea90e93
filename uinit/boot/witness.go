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

// witnessName is what this program is called in the process that shows what the Go runtime says of a panic.
const witnessName = "witness"

// witnessPatience is how long a terminal may take to send one piece of it, before it is left out.
const witnessPatience = 5 * time.Second

// startWitness makes a process that shows on all terminals what the Go runtime has to say when a panic that no guard
// caught ends this one. In such a moment nothing of ours runs any more, the runtime knows nothing but write(2), and
// with its end the kernel panics: what a serial port has not sent by then is lost, and a port that stands still would
// keep the machine from restarting. So the runtime writes into a pipe, whose other end has the patience, and the limits
// to it.
//
// The pipe holds one message at a time (O_DIRECT, see pipe(2)): the next is taken only when the one before is on the
// terminals.
func (b *boot) startWitness() error {
	var ends [2]int
	if err := unix.Pipe2(ends[:], unix.O_CLOEXEC|unix.O_DIRECT); err != nil {
		return fmt.Errorf("pipe: %w", err)
	}
	in, out := os.NewFile(uintptr(ends[0]), "witness"), os.NewFile(uintptr(ends[1]), "witness")
	defer in.Close()  //nolint:errcheck // the process has its own
	defer out.Close() //nolint:errcheck // standard error is its copy
	if _, err := unix.FcntlInt(out.Fd(), unix.F_SETPIPE_SZ, os.Getpagesize()); err != nil {
		return fmt.Errorf("make the pipe small: %w", err)
	}
	null, err := os.OpenFile(os.DevNull, os.O_RDWR, 0)
	if err != nil {
		return err
	}
	defer null.Close() //nolint:errcheck // the process has its own
	process, err := os.StartProcess("/proc/self/exe", append([]string{witnessName}, b.console.Paths()...), &os.ProcAttr{
		Dir: "/", Files: []*os.File{in, null, null},
		Env: []string{"GOMAXPROCS=1"}, // it does one thing at a time
	})
	if err != nil {
		return err
	}
	b.spawn(func() {
		state, err := process.Wait()
		b.log.Warn("a panic would no longer be shown in full", "err", errors.Join(err, fmt.Errorf("%s ended: %v", witnessName, state)))
	})
	if err := unix.Dup3(int(out.Fd()), int(os.Stderr.Fd()), 0); err != nil {
		return fmt.Errorf("standard error: %w", err)
	}
	return debug.SetCrashOutput(nil, debug.CrashOptions{}) // the one terminal that was to see it too
}

// witness is the work of that process: it shows what comes from in on the terminals, and ends with its other end.
func witness(in io.Reader, terminals []string, patience time.Duration) {
	signal.Ignore(unix.SIGHUP, unix.SIGINT, unix.SIGTERM, unix.SIGPIPE, unix.SIGQUIT, unix.SIGUSR2)
	message := make([]byte, os.Getpagesize())
	var stands []*stand
	for {
		n, err := in.Read(message)
		if err != nil {
			return
		}
		if stands == nil { // only now: a terminal that is opened early may be hung up until it is needed
			for _, path := range terminals {
				stands = append(stands, openStand(path))
			}
		}
		ctx, cancel := context.WithTimeout(context.Background(), patience)
		for _, s := range stands {
			s.begin(message[:n])
		}
		for _, s := range stands {
			s.await(ctx)
		}
		cancel()
	}
}

// stand is one terminal of the witness.
type stand struct {
	messages chan []byte
	shown    chan struct{} // one for each message
	behind   bool          // it did not show one in time, or cannot be opened: it gets no more
}

func openStand(path string) *stand {
	s := &stand{messages: make(chan []byte, 1), shown: make(chan struct{}, 1)}
	fd, err := unix.Open(path, unix.O_WRONLY|unix.O_NOCTTY|unix.O_NONBLOCK|unix.O_CLOEXEC, 0)
	if err == nil {
		err = unix.SetNonblock(fd, false) // opening it must not wait, writing to it has to
	}
	if err != nil {
		s.behind = true
		return s
	}
	goroutine.Go(func() error {
		s.run(fd, isVirtualTerminal(filepath.Base(path)))
		return nil
	}, nil) // a terminal that shows nothing is left out
	return s
}

func (s *stand) run(fd int, virtual bool) {
	if virtual {
		_ = writeAll(fd, []byte("\x1b[0m\n")) // below the picture, without its colours
	}
	for message := range s.messages {
		if writeAll(fd, message) != nil {
			return // is then behind
		}
		const drain = 1 // tcdrain(3): the kernel's panic would be faster than the port
		_ = unix.IoctlSetInt(fd, unix.TCSBRK, drain)
		s.shown <- struct{}{}
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

func (s *stand) begin(message []byte) {
	if !s.behind {
		s.messages <- slices.Clone(message)
	}
}

// await waits until the message is shown, or ctx ends.
func (s *stand) await(ctx context.Context) {
	if s.behind {
		return
	}
	select {
	case <-s.shown:
		return
	case <-ctx.Done():
	}
	select { // another terminal may have taken all the time, while this one was quick
	case <-s.shown:
	default:
		s.behind = true
	}
}
