// Package chroot runs a program of an installed system inside that system. It is the only place where the ramdisk runs
// code of an image. It is for operators who allow an image to install its own boot loader
// (enable_bios_bootloader_install).
//
// The program sees its own root, the device nodes of the disk, a read-only sysfs and procfs, an empty /run and /tmp,
// and only its own processes. /proc/cmdline contains only the root, because the ramdisk's command line contains the
// agent token and the root password. The kernel log and kernel memory are masked. The program has no network and no
// capability to mount, to create device nodes, to load modules or to read the kernel log, see [capabilities]. A filter
// denies the system calls that would undo the masks, see [DenyCalls]. Its mounts and processes are in namespaces of
// their own: the kernel removes them when the program ends for any reason. The program writes to the disk as root:
// this is not a sandbox.
package chroot

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path"
	"runtime"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"ironroot/internal/goroutine"
	"ironroot/storage/block"
)

// Name is what this program is called in the process that enters the root: whoever finds it in its own first argument
// calls Child.
const Name = "chroot"

const (
	patience  = 10 * time.Minute // that a program is given
	maxOutput = 4 << 10          // bytes of a program's output that are kept, the last ones

	namespaces = unix.CLONE_NEWNS | unix.CLONE_NEWPID | unix.CLONE_NEWNET | unix.CLONE_NEWIPC | unix.CLONE_NEWUTS
	// Exit codes of a child that could not run the program; no program is known to use them.
	notThere, notRun = 119, 120
)

var folders = []string{"/usr/local/sbin", "/usr/sbin", "/sbin", "/usr/local/bin", "/usr/bin", "/bin"}

// System is an installed system.
type System struct {
	Root    string   // device of the root file system
	ESP     string   // device that is mounted at /boot/efi, "" for none
	Devices []string // additional device nodes that the program sees: disk and partitions
	Mounts  []Mount  // additional file systems that the program sees
}

// Mount is a file system of the given kind and its mount point in the system.
type Mount struct{ Device, Kind, At string }

// Error describes the failure of a program.
type Error struct {
	Program string
	Output  string // its last lines
	Err     error
}

func (e *Error) Error() string {
	return fmt.Sprintf("%s of the image: %v: %s", e.Program, e.Err, e.Output)
}

func (e *Error) Unwrap() error { return e.Err }

// ErrNoProgram is returned if the system has none of the programs.
var ErrNoProgram = errors.New("no such program")

var errNotRun = errors.New("not run")

// Run runs a program inside the system; env is added to a short environment. Of the names in argv[0], separated by "|",
// the first that is there is run. A program that runs for more than ten minutes is killed. From the start of the program on errors
// are of type *Error.
func Run(ctx context.Context, s System, env []string, argv ...string) error {
	found, err := block.Probe(ctx, s.Root)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeoutCause(ctx, patience, fmt.Errorf("not done within %v", patience))
	defer cancel()
	entry, err := json.Marshal(entry{System: s, Kind: found.Type, UUID: found.UUID})
	if err != nil {
		return err
	}
	output, err := run(ctx, env, append([]string{Name, string(entry)}, argv...))
	if err != nil {
		return &Error{Program: argv[0], Output: strings.TrimSpace(string(output)), Err: err}
	}
	return nil
}

// run starts this program anew and waits for its end.
func run(ctx context.Context, env, argv []string) (output []byte, err error) {
	null, err := os.Open(os.DevNull)
	if err != nil {
		return nil, err
	}
	defer null.Close() //nolint:errcheck // the process has its own
	in, out, err := os.Pipe()
	if err != nil {
		return nil, err
	}
	defer in.Close() //nolint:errcheck // only read
	process, err := os.StartProcess("/proc/self/exe", argv, &os.ProcAttr{
		Dir: "/", Files: []*os.File{null, out, out},
		Env: append([]string{"PATH=" + strings.Join(folders, ":"), "LC_ALL=C", "HOME=/root"}, env...),
		Sys: &syscall.SysProcAttr{Cloneflags: namespaces},
	})
	if err := errors.Join(err, out.Close()); err != nil {
		return nil, err
	}
	stop := goroutine.AfterContext(ctx, func() { _ = process.Kill() }) // it may have ended by itself
	defer stop()
	output = tail(in) // up to the end of all that could write there
	state, err := process.Wait()
	switch {
	case err != nil:
		return output, err
	case ctx.Err() != nil:
		return output, context.Cause(ctx)
	case state.ExitCode() == notThere:
		return output, ErrNoProgram
	case state.ExitCode() == notRun:
		return output, errNotRun
	case !state.Success():
		return output, errors.New(state.String())
	}
	return output, nil
}

// tail reads to the end and returns the last bytes.
func tail(in io.Reader) []byte {
	var kept []byte
	piece := make([]byte, maxOutput)
	for {
		n, err := in.Read(piece)
		kept = append(kept, piece[:n]...)
		kept = kept[max(0, len(kept)-maxOutput):]
		if err != nil {
			return kept
		}
	}
}

// Child is the work of the process that enters the root. It does not return.
func Child(args []string) {
	runtime.LockOSThread() // capabilities are those of a thread
	err := errors.New("takes a description of the system and a program")
	if len(args) > 1 {
		var e entry
		err = json.Unmarshal([]byte(args[0]), &e)
		if err == nil {
			err = e.enter()
		}
		if err == nil {
			err = execute(args[1:])
		}
	}
	_, _ = os.Stderr.WriteString(Name + ": " + err.Error() + "\n")
	if errors.Is(err, ErrNoProgram) {
		os.Exit(notThere)
	}
	os.Exit(notRun)
}

// execute becomes the program.
func execute(argv []string) error {
	for name := range strings.SplitSeq(argv[0], "|") {
		for _, folder := range folders {
			program := path.Join(folder, name)
			if unix.Access(program, unix.X_OK) == nil {
				return fmt.Errorf("%s: %w", program, unix.Exec(program, append([]string{program}, argv[1:]...), os.Environ()))
			}
		}
	}
	return fmt.Errorf("%s: %w", argv[0], ErrNoProgram)
}
