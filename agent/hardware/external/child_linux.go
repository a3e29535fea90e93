package external

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"runtime"
	"slices"
	"syscall"

	"golang.org/x/sys/unix"

	"ironroot/internal/confine"
)

// childName is the first argument of the process that becomes the executable, instead of the program's name.
const childName = "external-manager"

// callsSocket is the descriptor of the socket from [confine.NewDenialSocket].
const callsSocket = 3

// exitNotRun is the exit code of a child that could not run the executable.
const exitNotRun = 120

// namespaces are the namespaces of an executable: mounts, processes, IPC and host name.
const namespaces = unix.CLONE_NEWNS | unix.CLONE_NEWPID | unix.CLONE_NEWIPC | unix.CLONE_NEWUTS

// start implements starter: it starts a program of the ramdisk or of a manager root in namespaces of its own.
func (p program) start() (*process, error) {
	text, err := json.Marshal(p)
	if err != nil {
		return nil, err
	}
	calls, err := confine.NewDenialSocket()
	if err != nil {
		return nil, err
	}
	defer calls.Close() //nolint:errcheck // the process has its own
	return startProcess("/proc/self/exe", []string{childName, string(text)}, namespaces, p.input, calls)
}

// attributes makes a process start in new namespaces.
func attributes(cloneFlags uintptr) *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Cloneflags: cloneFlags}
}

// Child becomes the executable, if this process was started for one. Otherwise it returns. Every program that loads
// external managers must call it first.
func Child() {
	if os.Args[0] != childName {
		return
	}
	runtime.LockOSThread() // capabilities belong to threads
	err := errors.New("want the description of a program")
	if len(os.Args) == 2 {
		var p program
		if err = json.Unmarshal([]byte(os.Args[1]), &p); err == nil {
			err = p.become()
		}
	}
	_, _ = os.Stderr.WriteString(childName + ": " + err.Error() + "\n")
	os.Exit(exitNotRun)
}

// become makes this process the program. It returns only if that fails. Without Argv, the process lists the
// managers or the programs of the root, and ends.
func (p program) become() error {
	var err error
	if p.Root == "" {
		err = enter(p.Calls)
	} else {
		err = enterRoot(context.Background(), p.Root, p.Calls) // the parent kills this process when its context ends
	}
	if err != nil {
		return err
	}
	if len(p.Argv) == 0 {
		if len(p.Programs) > 0 {
			err = printPrograms(os.Stdout, p.Programs)
		} else {
			err = printManagers(os.Stdout)
		}
		if err != nil {
			return err
		}
		os.Exit(0)
	}
	if err := confine.CloseFiles(); err != nil {
		return err
	}
	return fmt.Errorf("run %s: %w", p.Argv[0], unix.Exec(p.Argv[0], p.Argv, os.Environ()))
}

// removedCapabilities are the capabilities(7) with which a program could leave its namespaces: load a module, replace
// the kernel, read its log or memory, create a device node for either (controlNodes are made before), make the kernel
// write to a file of its choice (CAP_SYS_PACCT), or open a covered file by its handle (CAP_DAC_READ_SEARCH, see
// open_by_handle_at(2)).
var removedCapabilities = []int{
	unix.CAP_SYS_MODULE, unix.CAP_SYS_BOOT, unix.CAP_SYSLOG, unix.CAP_MKNOD, unix.CAP_SYS_PTRACE, unix.CAP_BPF,
	unix.CAP_PERFMON, unix.CAP_CHECKPOINT_RESTORE, unix.CAP_MAC_ADMIN, unix.CAP_MAC_OVERRIDE,
	unix.CAP_DAC_READ_SEARCH, unix.CAP_SYS_PACCT,
}

// enter hides the agent and its secrets from this process and its children, and permits only the system calls of
// programs and addedCalls. It runs in namespaces of its own.
func enter(addedCalls []string) error {
	if err := confine.KeepMountsPrivate(); err != nil {
		return err
	}
	makeControlNodes() // before /dev is read-only
	for _, f := range []func() error{
		mountOwn, coverKernel, protectFiles,
		func() error { return confine.ProgramPolicy(addedCalls...).ApplyAndSend(callsSocket) },
	} {
		if err := f(); err != nil {
			return err
		}
	}
	return limitCapabilities()
}

// limitCapabilities removes removedCapabilities, and more.
func limitCapabilities(more ...int) error {
	return confine.LimitCapabilities(func(c int) bool {
		return !slices.Contains(removedCapabilities, c) && !slices.Contains(more, c)
	})
}

// mountOwn mounts the process's own /proc and empty directories in place of those with files of the agent.
func mountOwn() error {
	// The processes of the ramdisk must not be below a mount that could be removed.
	if err := unix.Unmount("/proc", unix.MNT_DETACH); err != nil {
		return fmt.Errorf("unmount /proc: %w", err)
	}
	for _, m := range []struct {
		kind, at string
		flags    uintptr
		data     string
		required bool
	}{
		// /proc/sys names programs that the kernel starts.
		{"proc", "/proc", confine.DataOnly | unix.MS_RDONLY, "", true},
		// Without limits, each could take half of the memory, and more for its files.
		{"tmpfs", "/run", confine.DataOnly, "size=5%," + confine.MaxFilesOption, true},
		{"tmpfs", "/tmp", unix.MS_NOSUID | unix.MS_NODEV, "size=25%," + confine.MaxFilesOption, true},
		// Files with the agent's configuration, which can contain its token.
		{"tmpfs", "/etc/ironic-python-agent", confine.DataOnly | unix.MS_RDONLY, "", false},
		{"tmpfs", "/etc/ironic-python-agent.d", confine.DataOnly | unix.MS_RDONLY, "", false},
		{"tmpfs", "/etc/ironroot", confine.DataOnly | unix.MS_RDONLY, "", false},
	} {
		err := unix.Mount(m.kind, m.at, m.kind, m.flags, m.data)
		if err != nil && (m.required || !errors.Is(err, fs.ErrNotExist)) {
			return fmt.Errorf("mount %s: %w", m.at, err)
		}
	}
	return nil
}

// coverKernel covers the kernel's command line, which can contain the agent's token, its log, its memory and its keys.
func coverKernel() error {
	if err := confine.Mask("\n"); err != nil {
		return err
	}
	return confine.HideFiles(
		"/dev/kmsg", "/dev/mem", "/dev/kmem", "/dev/port", "/dev/nvram", "/dev/snapshot", "/dev/userfaultfd",
		"/proc/keys",
	)
}

// protectFiles makes the mounts read-only that affect processes outside of the namespaces.
func protectFiles() error {
	if err := protectSysfs(); err != nil {
		return err
	}
	// The kernel starts programs of the root, too, and the agent opens devices by their names in /dev. A device can be
	// written to in a read-only /dev.
	for _, dir := range []string{"/", "/dev"} {
		if err := readOnly(dir, false); err != nil {
			return err
		}
	}
	return nil
}

// protectSysfs makes /sys/kernel and /sys/power read-only, and hides /sys/fs/cgroup.
func protectSysfs() error {
	// Files there name programs that the kernel starts; mounts below show its memory.
	if err := readOnly("/sys/kernel", true); err != nil {
		return err
	}
	// A write to /sys/power/state suspends the machine.
	if err := readOnly("/sys/power", true); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	// release_agent of a hierarchy of version 1 names a program that the kernel starts. The ramdisk mounts no
	// hierarchy, but the machine of a developer who runs the tests has one.
	return confine.HideDirectory("/sys/fs/cgroup")
}

// readOnly makes a mount read-only in this namespace. With bind, dir becomes a mount without those below it.
func readOnly(dir string, bind bool) error {
	if bind {
		if err := unix.Mount(dir, dir, "", unix.MS_BIND, ""); err != nil {
			return fmt.Errorf("mount %s: %w", dir, err)
		}
	}
	if err := unix.Mount("", dir, "", unix.MS_REMOUNT|unix.MS_BIND|unix.MS_RDONLY|unix.MS_NOSUID, ""); err != nil {
		return fmt.Errorf("make %s read-only: %w", dir, err)
	}
	return nil
}

// checkOrigin reports an error if a file is not a part of the ramdisk: a regular file of root's on the root file system
// that nobody else can write to.
func checkOrigin(path string) error {
	const wanted = unix.STATX_BASIC_STATS | unix.STATX_MNT_ID
	var root, file unix.Statx_t
	if err := unix.Statx(unix.AT_FDCWD, "/", 0, wanted, &root); err != nil {
		return fmt.Errorf("stat /: %w", err)
	}
	if err := unix.Statx(unix.AT_FDCWD, path, unix.AT_SYMLINK_NOFOLLOW, wanted, &file); err != nil {
		return fmt.Errorf("stat %s: %w", path, err)
	}
	switch {
	case file.Mode&unix.S_IFMT != unix.S_IFREG:
		return errors.New("not a regular file")
	case file.Uid != 0 || file.Mode&0o022 != 0:
		return fmt.Errorf("owner %d, mode %o: others than root can write to it", file.Uid, file.Mode&0o7777)
	case file.Mask&unix.STATX_MNT_ID == 0 || file.Mnt_id != root.Mnt_id:
		return errors.New("not on the root file system")
	}
	return nil
}
