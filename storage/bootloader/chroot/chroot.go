// Package chroot runs a program of an installed system inside that system. It is the one place where the ramdisk runs
// foreign code, for operators who switched on that a boot loader of the image is installed (enable_bios_bootloader_install).
//
// The program sees its own root, device nodes, a sysfs, an empty /run and /tmp, and processes of its own only, so that
// nothing of the agent's memory is within reach of its /proc; it has no network. The mounts are those of its own
// namespaces: they end with it, however it ends, and so does everything that it started. It has all rights of root: this
// is no sandbox.
package chroot

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path"
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
	mountedAt = "/tmp"           // any folder; in the child's namespace only
	// Exit codes of a child that could not run the program; no program is known to use them.
	notThere, notRun = 119, 120
)

var folders = []string{"/usr/local/sbin", "/usr/sbin", "/sbin", "/usr/local/bin", "/usr/bin", "/bin"}

// System is an installed system.
type System struct {
	Root string // device of the root file system
	ESP  string // device of what is mounted at /boot/efi, "" for nothing
}

// Error is how a program failed.
type Error struct {
	Program string
	Output  string // its last lines
	Err     error
}

func (e *Error) Error() string {
	return fmt.Sprintf("%s of the image: %v: %s", e.Program, e.Err, e.Output)
}

func (e *Error) Unwrap() error { return e.Err }

// ErrNoProgram says that the system has none of the programs.
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
	output, err := run(ctx, env, append([]string{Name, s.Root, found.Type, found.UUID, s.ESP}, argv...))
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
		Sys: &syscall.SysProcAttr{Cloneflags: unix.CLONE_NEWNS | unix.CLONE_NEWPID | unix.CLONE_NEWNET | unix.CLONE_NEWIPC},
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
	err := errors.New("takes root, file system, its UUID, ESP and a program")
	if len(args) > 4 {
		err = enter(args[0], args[1], args[2], args[3])
		if err == nil {
			err = execute(args[4:])
		}
	}
	_, _ = os.Stderr.WriteString(Name + ": " + err.Error() + "\n")
	if errors.Is(err, ErrNoProgram) {
		os.Exit(notThere)
	}
	os.Exit(notRun)
}

// enter makes the system's root the one of this process. Folders of the system are named only from inside of it, so that
// its links lead nowhere else.
func enter(root, kind, uuid, esp string) error {
	if err := unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""); err != nil {
		return fmt.Errorf("keep mounts private: %w", err)
	}
	devices, err := unix.OpenTree(unix.AT_FDCWD, "/dev", unix.OPEN_TREE_CLONE|unix.AT_RECURSIVE|unix.OPEN_TREE_CLOEXEC)
	if err != nil {
		return fmt.Errorf("device nodes: %w", err)
	}
	if err := unix.Mount(root, mountedAt, kind, 0, ""); err != nil {
		return fmt.Errorf("mount %s, %s: %w", root, kind, err)
	}
	if err := unix.Chdir(mountedAt); err != nil {
		return err
	}
	if err := unix.Chroot("."); err != nil {
		return fmt.Errorf("enter %s: %w", root, err)
	}
	if err := unix.MoveMount(devices, "", unix.AT_FDCWD, "/dev", unix.MOVE_MOUNT_F_EMPTY_PATH); err != nil {
		if kind == "btrfs" {
			kind += ", in its default subvolume"
		}
		return fmt.Errorf("mount /dev in %s, %s: %w", root, kind, err)
	}
	const safe = unix.MS_NOSUID | unix.MS_NODEV | unix.MS_NOEXEC
	for _, m := range []struct {
		kind, at string
		flags    uintptr
	}{{"proc", "/proc", safe}, {"sysfs", "/sys", safe}, {"tmpfs", "/run", safe}, {"tmpfs", "/tmp", safe &^ unix.MS_NOEXEC}} {
		if err := unix.Mount(m.kind, m.at, m.kind, m.flags, ""); err != nil {
			return fmt.Errorf("mount %s: %w", m.at, err)
		}
	}
	if err := nameRoot(root, uuid); err != nil {
		return fmt.Errorf("name %s by its UUID: %w", root, err)
	}
	if esp == "" {
		return nil
	}
	if err := os.MkdirAll("/boot/efi", 0o700); err != nil {
		return err
	}
	if err := unix.Mount(esp, "/boot/efi", "vfat", safe, ""); err != nil {
		return fmt.Errorf("mount %s: %w", esp, err)
	}
	return nil
}

// nameRoot makes the one link in /dev/disk that matters: without it GRUB writes the root's device path into its menu,
// which the installed system need not have. Of all that only an empty folder is seen outside.
func nameRoot(root, uuid string) error {
	if uuid == "" {
		return nil
	}
	const disk = "/dev/disk"
	if err := os.Mkdir(disk, 0o755); err != nil && !errors.Is(err, os.ErrExist) {
		return err
	}
	if err := unix.Mount("tmpfs", disk, "tmpfs", unix.MS_NOSUID|unix.MS_NODEV|unix.MS_NOEXEC, ""); err != nil {
		return err
	}
	if err := os.Mkdir(disk+"/by-uuid", 0o755); err != nil {
		return err
	}
	return os.Symlink(root, disk+"/by-uuid/"+path.Base(uuid))
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
