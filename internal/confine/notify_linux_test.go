package confine

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/exec"
	"os/signal"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/elastic/go-seccomp-bpf/arch"
	"golang.org/x/sys/unix"

	"ironroot/internal/test/testenv"
)

// confinedName is the first argument of the test's program that limits itself, and prints the results of its calls.
const confinedName = "confine-test"

// signalledName is the first argument of the test's program that makes one call, which a decider holds up.
const signalledName = "confine-test-signalled"

func TestMain(m *testing.M) {
	switch os.Args[0] {
	default:
		os.Exit(m.Run())
	case signalledName:
		runtime.LockOSThread()
		signal.Notify(make(chan os.Signal, 1), unix.SIGUSR1) // its handler restarts calls
		if err := ProgramPolicy().ApplyAndSend(3); err != nil {
			fmt.Println(err)
			os.Exit(1)
		}
		_, _, errno := unix.Syscall(unix.SYS_ACCT, 0, 0, 0)
		fmt.Println(errno)
		os.Exit(0)
	case confinedName:
	}
	if err := ProgramPolicy("acct").ApplyAndSend(3); err != nil {
		fmt.Println(err)
		os.Exit(1)
	}
	bad := ^uintptr(0)
	for range 2 {
		for _, call := range []struct {
			name   string
			number uintptr
		}{
			{"bpf", unix.SYS_BPF},
			{"keyctl", unix.SYS_KEYCTL},
			{"clone3", unix.SYS_CLONE3},
			{"later", 1000},
			{"much later", 1 << 30},
			{"acct", unix.SYS_ACCT},
			{"getppid", unix.SYS_GETPPID},
		} {
			_, _, errno := unix.Syscall6(call.number, bad, bad, bad, bad, bad, bad)
			fmt.Printf("%s: %d\n", call.name, errno)
		}
	}
	os.Exit(0)
}

// signaller sends a signal to the thread of the first call, and waits until the call is given up, or for a while. It
// counts the calls.
type signaller struct{ process, calls int }

func (s *signaller) Decide(_ context.Context, l Listener, n Notification) error {
	if s.calls++; s.calls > 1 {
		return unix.EBUSY
	}
	if err := unix.Tgkill(s.process, int(n.PID), unix.SIGUSR1); err != nil {
		return err
	}
	for range 100 {
		if l.CheckWaiting(n) != nil {
			break
		}
		time.Sleep(2 * time.Millisecond)
	}
	return unix.EBUSY
}

// A call that is being decided is not given up because of a signal: otherwise it would be decided, and have an effect,
// again.
func TestSignal(t *testing.T) {
	testenv.Root(t)
	fds, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_SEQPACKET|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	ours, theirs := fds[0], os.NewFile(uintptr(fds[1]), "theirs")
	defer unix.Close(ours) //nolint:errcheck // only read
	c := exec.CommandContext(t.Context(), "/proc/self/exe")
	var output bytes.Buffer
	c.Args, c.ExtraFiles, c.Stdout = []string{signalledName}, []*os.File{theirs}, &output
	if err := errors.Join(c.Start(), theirs.Close()); err != nil {
		t.Fatal(err)
	}
	rights := make([]byte, unix.CmsgSpace(4))
	_, size, _, _, err := unix.Recvmsg(ours, make([]byte, 1), rights, 0)
	if err != nil {
		t.Fatal(err)
	}
	listener, err := ParseListener(rights[:size])
	if err != nil {
		t.Fatal(err)
	}
	defer listener.Close() //nolint:errcheck // the process has ended
	s := signaller{process: c.Process.Pid}
	if err := errors.Join(Serve(t.Context(), listener, &s), c.Wait()); err != nil {
		t.Fatal(err)
	}
	if want := unix.EBUSY.Error() + "\n"; output.String() != want || s.calls != 1 {
		t.Errorf("got %d calls and %q, want 1 and %q", s.calls, &output, want)
	}
}

// A message without a listener is an error, and of several descriptors only the first is kept.
func TestParseListener(t *testing.T) {
	fds, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_SEQPACKET|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, 0)
	if err != nil {
		t.Fatal(err)
	}
	if err := unix.Sendmsg(fds[1], []byte{0}, nil, nil, 0); err != nil {
		t.Fatal(err)
	}
	if err := serveDenials(os.NewFile(uintptr(fds[0]), "ours")); err == nil {
		t.Error("got no error for a message without a listener")
	}
	if err := unix.Close(fds[1]); err != nil {
		t.Fatal(err)
	}
	var pipe [2]int
	if err := unix.Pipe2(pipe[:], unix.O_CLOEXEC); err != nil {
		t.Fatal(err)
	}
	f, err := ParseListener(unix.UnixRights(pipe[0], pipe[1]))
	if err != nil || f.Fd() != uintptr(pipe[0]) {
		t.Fatalf("got %v, %v, want descriptor %d", f, err, pipe[0])
	}
	if n, err := f.Read(make([]byte, 1)); n != 0 || !errors.Is(err, io.EOF) {
		t.Errorf("got %d, %v, want the end of the pipe: its other end is still open", n, err)
	}
	if err := f.Close(); err != nil {
		t.Error(err)
	}
}

// A call that is not permitted fails with EPERM, or with ENOSYS if kernels can lack it. Each is logged once by its
// name, unless programs are prepared for its failure; unknown calls are logged once together.
func TestNewDenialSocket(t *testing.T) {
	testenv.Root(t)
	var log testenv.Log
	before := slog.Default()
	slog.SetDefault(slog.New(slog.NewTextHandler(&log, nil)))
	t.Cleanup(func() { slog.SetDefault(before) })
	calls, err := NewDenialSocket()
	if err != nil {
		t.Fatal(err)
	}
	c := exec.CommandContext(t.Context(), "/proc/self/exe")
	c.Args, c.ExtraFiles = []string{confinedName}, []*os.File{calls}
	output, err := c.CombinedOutput()
	if err := calls.Close(); err != nil {
		t.Error(err)
	}
	if err != nil {
		t.Fatalf("%v: %s", err, output)
	}
	once := fmt.Sprintf("bpf: %d\nkeyctl: %d\nclone3: %d\nlater: %d\nmuch later: %d\nacct: %d\ngetppid: 0\n",
		unix.EPERM, unix.ENOSYS, unix.ENOSYS, unix.ENOSYS, unix.ENOSYS, unix.EFAULT)
	if want := once + once; string(output) != want {
		t.Errorf("got\n%s\nwant\n%s", output, want)
	}
	var logged []string
	for line := range strings.Lines(log.String()) {
		_, rest, _ := strings.Cut(line, "msg=")
		logged = append(logged, strings.TrimSpace(rest))
	}
	machine, err := arch.GetInfo("")
	if err != nil {
		t.Fatal(err)
	}
	var want []string
	for _, call := range [][2]string{
		{"bpf", unix.EPERM.Error()}, {"keyctl", unix.ENOSYS.Error()}, {"1000", unix.ENOSYS.Error()},
	} {
		want = append(want, fmt.Sprintf(`"system call not permitted" call=%s arch=%s program=exe err=%q`,
			call[0], machine.Name, call[1]))
	}
	if !slices.Equal(logged, want) {
		t.Errorf("got the log\n%s\nwant\n%s", strings.Join(logged, "\n"), strings.Join(want, "\n"))
	}
}
