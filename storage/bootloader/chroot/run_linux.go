package chroot

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path"
	"runtime"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"ironroot/internal/confine"
	"ironroot/internal/goroutine"
	"ironroot/storage/block"
)

// childName is the first argument of the process that enters the root, instead of the program's name.
const childName = "chroot"

// callsSocket is the descriptor of the socket from [confine.NewDenialSocket].
const callsSocket = 3

const (
	programTimeout = 10 * time.Minute

	namespaces = unix.CLONE_NEWNS | unix.CLONE_NEWPID | unix.CLONE_NEWNET | unix.CLONE_NEWIPC | unix.CLONE_NEWUTS
	// Exit codes of a child that could not run the program. No program is known to use them.
	exitNotFound, exitNotRun = 119, 120
)

var directories = []string{"/usr/local/sbin", "/usr/sbin", "/sbin", "/usr/local/bin", "/usr/bin", "/bin"}

var errNotRun = errors.New("not run")

// Run runs a program inside the system. argv[0] lists names separated by "|", of which the first that exists is run.
// env is added to a minimal environment. A program that runs for more than ten minutes is killed. If the program was
// started, errors are of type *Error.
func Run(ctx context.Context, s System, env []string, argv ...string) error {
	found, err := block.Probe(ctx, s.Root)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeoutCause(ctx, programTimeout, fmt.Errorf("not done within %v", programTimeout))
	defer cancel()
	entry, err := json.Marshal(entry{System: s, Kind: found.Type, UUID: found.UUID})
	if err != nil {
		return err
	}
	output, err := run(ctx, env, append([]string{childName, string(entry)}, argv...))
	if err != nil {
		return &Error{Program: argv[0], Output: strings.TrimSpace(string(output)), Err: err}
	}
	return nil
}

// run starts this program again as the child and waits for its end.
func run(ctx context.Context, env, argv []string) (output []byte, err error) {
	null, err := os.Open(os.DevNull)
	if err != nil {
		return nil, err
	}
	defer null.Close() //nolint:errcheck // the process has its own
	calls, err := confine.NewDenialSocket()
	if err != nil {
		return nil, err
	}
	defer calls.Close() //nolint:errcheck // the process has its own
	in, out, err := os.Pipe()
	if err != nil {
		return nil, err
	}
	defer in.Close() //nolint:errcheck // only read
	process, err := os.StartProcess("/proc/self/exe", argv, &os.ProcAttr{
		Dir: "/", Files: []*os.File{null, out, out, calls},
		Env: append([]string{"PATH=" + strings.Join(directories, ":"), "LC_ALL=C", "HOME=/root"}, env...),
		Sys: &syscall.SysProcAttr{Cloneflags: namespaces},
	})
	if err := errors.Join(err, out.Close()); err != nil {
		return nil, err
	}
	stop := goroutine.AfterContext(ctx, func() { _ = process.Kill() }) // fails if it has ended
	defer stop()
	output = confine.Tail(in) // until all processes that can write have ended
	state, err := process.Wait()
	switch {
	case err != nil:
		return output, err
	case ctx.Err() != nil:
		return output, context.Cause(ctx)
	case state.ExitCode() == exitNotFound:
		return output, ErrNoProgram
	case state.ExitCode() == exitNotRun:
		return output, errNotRun
	case !state.Success():
		return output, errors.New(state.String())
	}
	return output, nil
}

// Child runs the child process and ends it, if this process was started as one. Otherwise it returns. Every program
// that uses this package must call it first.
func Child() {
	if os.Args[0] == childName {
		child(os.Args[1:])
	}
}

func child(args []string) {
	runtime.LockOSThread() // capabilities belong to threads
	err := errors.New("want a description of the system and a program")
	if len(args) > 1 {
		var e entry
		err = json.Unmarshal([]byte(args[0]), &e)
		if err == nil {
			err = e.enter()
		}
		if err == nil {
			err = confine.CloseFiles()
		}
		if err == nil {
			err = execute(args[1:])
		}
	}
	_, _ = os.Stderr.WriteString(childName + ": " + err.Error() + "\n")
	if errors.Is(err, ErrNoProgram) {
		os.Exit(exitNotFound)
	}
	os.Exit(exitNotRun)
}

// execute replaces this process by the program.
func execute(argv []string) error {
	for name := range strings.SplitSeq(argv[0], "|") {
		for _, directory := range directories {
			program := path.Join(directory, name)
			if unix.Access(program, unix.X_OK) == nil {
				err := unix.Exec(program, append([]string{program}, argv[1:]...), os.Environ())
				return fmt.Errorf("%s: %w", program, err)
			}
		}
	}
	return fmt.Errorf("%s: %w", argv[0], ErrNoProgram)
}
