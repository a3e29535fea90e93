//go:build linux

package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

const (
	// sandboxArgument makes this program process 1 of new namespaces, which runs a test binary.
	sandboxArgument = "run-in-sandbox"
	// sandboxTrace is the file in the sandbox that is copied to descriptor 3 when the program has ended.
	sandboxTrace = "/tmp/reached"
	// stopTime is the time for a sandbox to end by itself.
	stopTime = 10 * time.Second
	// orphanTime is the time for processes to end by themselves after the program that started them has failed.
	orphanTime = 2 * time.Second
)

// sandboxed returns a command that runs a program in new namespaces, in the directory dir. base is an empty
// directory to work in. When the context ends, the first process kills the program and ends, or is killed itself after
// stopTime. When it has ended, the kernel kills all others in the namespaces.
func sandboxed(ctx context.Context, base, dir, program string, arguments ...string) *exec.Cmd {
	arguments = append([]string{sandboxArgument, mountNamespace(), base, dir, program}, arguments...)
	cmd := exec.CommandContext(ctx, "/proc/self/exe", arguments...)
	cmd.Cancel = func() error { return cmd.Process.Signal(unix.SIGTERM) }
	cmd.WaitDelay = stopTime
	cmd.SysProcAttr = &syscall.SysProcAttr{
		Cloneflags: unix.CLONE_NEWPID | unix.CLONE_NEWNS | unix.CLONE_NEWNET | unix.CLONE_NEWUTS | unix.CLONE_NEWIPC,
		Pdeathsig:  unix.SIGKILL,
	}
	return cmd
}

// mountNamespace returns the name of the calling thread's mount namespace, or "" if it is unknown.
func mountNamespace() string {
	name, _ := os.Readlink("/proc/thread-self/ns/mnt")
	return name
}

// errShared is returned if the process shares namespaces with the machine, whose mounts it must not change.
var errShared = errors.New("process is not alone in new namespaces")

// sandbox is process 1 of the namespaces: it hides what mutants must not access, runs the program and exits with its
// status. When the context ends, it kills only the program: the program can need a process that it has started to end,
// such as one that thaws a file system. The arguments are those of sandboxed. It returns an error and changes nothing
// if the process is not the first one of a PID namespace, or is in the mount namespace of its caller.
func sandbox(ctx context.Context, arguments []string) error {
	runtime.LockOSThread() // a thread drops capabilities for itself, and this one must start the program
	caller, base, dir, program, arguments := arguments[0], arguments[1], arguments[2], arguments[3], arguments[4:]
	own := mountNamespace()
	if pid := os.Getpid(); pid != 1 || own == "" || !strings.HasPrefix(caller, "mnt:") || own == caller {
		return fmt.Errorf("sandbox: %w: got process %d in %q, want process 1 outside of %q",
			errShared, pid, own, caller)
	}
	root, err := newRoot(base, dir, program)
	if err == nil {
		err = errors.Join(hideDevices(root), enter(root), loopbackUp(), dropCapabilities())
	}
	if err != nil {
		return fmt.Errorf("sandbox: %w", err)
	}
	cmd := exec.CommandContext(ctx, "/tmp/program", arguments...)
	cmd.Dir, cmd.Stdout, cmd.Stderr = dir, os.Stdout, os.Stderr
	if err = cmd.Run(); err != nil {
		awaitOthers()
	}
	detachLoops()
	err = errors.Join(err, copyTrace())
	var exited *exec.ExitError
	if errors.As(err, &exited) {
		os.Exit(max(exited.ExitCode(), 1))
	}
	return err
}

// awaitOthers waits until the other processes of the sandbox have ended, at most for orphanTime. Process 1 is their
// parent after the end of the program, and the kernel kills them when process 1 ends.
func awaitOthers() {
	for start := time.Now(); time.Since(start) < orphanTime; {
		switch pid, err := unix.Wait4(-1, nil, unix.WNOHANG, nil); {
		case errors.Is(err, unix.ECHILD):
			return
		case pid == 0:
			time.Sleep(5 * time.Millisecond) // there is no wait with a time limit
		}
	}
}

// newRoot returns a directory below base that shows the machine's files. Changes stay in memory: mutants delete files,
// and mount file systems read-only, which no mount namespace confines. /tmp and file systems without a disk are empty
// there, except for program in /tmp and the module that dir belongs to.
func newRoot(base, dir, program string) (string, error) {
	if err := unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""); err != nil {
		return "", fmt.Errorf("private mounts: %w", err)
	}
	if err := unix.Mount("tmpfs", base, "tmpfs", 0, "mode=755"); err != nil {
		return "", fmt.Errorf("mount %s: %w", base, err)
	}
	root := filepath.Join(base, "root")
	mounts, err := os.ReadFile("/proc/self/mounts")
	if err != nil {
		return "", err
	}
	places := []string{"/"}
	for line := range strings.Lines(string(mounts)) {
		f := strings.Fields(line)
		onDisk := strings.HasPrefix(f[0], "/dev/") ||
			slices.Contains([]string{"overlay", "9p", "virtiofs", "zfs"}, f[2])
		if onDisk && f[1] != "/" && !strings.HasPrefix(f[1], "/tmp/") && !strings.Contains(f[1], `\`) {
			places = append(places, f[1])
		}
	}
	for i, place := range places {
		if err := overlay(place, root, filepath.Join(base, fmt.Sprintf("layer%d", i))); err != nil {
			return "", err
		}
	}
	for _, system := range []struct{ kind, dir string }{{"proc", "/proc"}, {"sysfs", "/sys"}, {"tmpfs", "/tmp"}} {
		if err := unix.Mount(system.kind, root+system.dir, system.kind, 0, ""); err != nil {
			return "", fmt.Errorf("mount %s: %w", system.dir, err)
		}
	}
	if err := unix.Mount("/dev", root+"/dev", "", unix.MS_BIND|unix.MS_REC, ""); err != nil {
		return "", fmt.Errorf("bind /dev: %w", err)
	}
	if _, err := os.Stat(filepath.Join(root, dir)); err != nil { // in /tmp, or on a file system that is not shown
		if err := overlay(moduleRoot(dir), root, filepath.Join(base, "module")); err != nil {
			return "", err
		}
	}
	return root, errors.Join(copyFile(program, root+"/tmp/program"), writeForAll(root+sandboxTrace, ""),
		writeForAll(root+sandboxEnvironment, environmentText()))
}

// environmentText returns the content of sandboxEnvironment.
func environmentText() string {
	text := ""
	for _, name := range []string{activeVariable, traceVariable} {
		text += name + "=" + os.Getenv(name) + "\n"
	}
	return text
}

// writeForAll writes a file that processes of all users of the sandbox can read and write.
func writeForAll(name, text string) error {
	return errors.Join(os.WriteFile(name, []byte(text), 0o600), os.Chmod(name, 0o666)) //nolint:gosec // see above
}

// overlay shows a directory at the same place below root. Changes are written to the directory layer.
func overlay(place, root, layer string) error {
	for _, d := range []string{layer + "/upper", layer + "/work", filepath.Join(root, place)} {
		if err := os.MkdirAll(d, 0o755); err != nil {
			return err
		}
	}
	options := fmt.Sprintf("lowerdir=%s,upperdir=%s/upper,workdir=%s/work", place, layer, layer)
	if err := unix.Mount("overlay", filepath.Join(root, place), "overlay", 0, options); err != nil {
		return fmt.Errorf("overlay of %s: %w", place, err)
	}
	return nil
}

// moduleRoot returns the directory of the go.mod file that dir belongs to, or dir if there is none.
func moduleRoot(dir string) string {
	for d := dir; d != "/" && d != "."; d = filepath.Dir(d) {
		if _, err := os.Stat(filepath.Join(d, "go.mod")); err == nil {
			return d
		}
	}
	return dir
}

// hideDevices mounts /dev/null over the disks below root that are no loop devices and over other devices of the
// machine, and hides the switches of the kernel and the firmware's variables.
func hideDevices(root string) error {
	nodes, err := filepath.Glob(root + "/dev/*")
	if err != nil {
		return err
	}
	hidden := []string{root + "/proc/sysrq-trigger"} // not every kernel has it
	for _, node := range nodes {
		var stat unix.Stat_t
		if err := unix.Stat(node, &stat); err != nil {
			continue // a link to nothing
		}
		name := filepath.Base(node)
		disk := stat.Mode&unix.S_IFMT == unix.S_IFBLK && !strings.HasPrefix(name, "loop")
		if disk || slices.Contains([]string{"mem", "kmsg"}, name) || slices.ContainsFunc(
			[]string{"rtc", "nvme", "watchdog", "ipmi"},
			func(kind string) bool { return strings.HasPrefix(name, kind) }) {
			hidden = append(hidden, node)
		}
	}
	for _, file := range hidden {
		if err := unix.Mount("/dev/null", file, "", unix.MS_BIND, ""); err != nil && !errors.Is(err, unix.ENOENT) {
			return fmt.Errorf("hide %s: %w", file, err)
		}
	}
	for _, dir := range []string{"/sys/firmware/efi", "/dev/mapper", "/dev/disk"} {
		if err := unix.Mount("tmpfs", root+dir, "tmpfs", 0, ""); err != nil && !errors.Is(err, unix.ENOENT) {
			return fmt.Errorf("hide %s: %w", dir, err)
		}
	}
	return nil
}

// enter makes root the root directory and detaches the former one.
func enter(root string) error {
	if err := os.Chdir(root); err != nil {
		return err
	}
	if err := unix.PivotRoot(".", "."); err != nil {
		return fmt.Errorf("pivot_root %s: %w", root, err)
	}
	return unix.Unmount(".", unix.MNT_DETACH)
}

func loopbackUp() error {
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return err
	}
	defer unix.Close(fd) //nolint:errcheck // nothing was written
	request, err := unix.NewIfreq("lo")
	if err != nil {
		return err
	}
	request.SetUint16(unix.IFF_UP)
	return unix.IoctlIfreq(fd, unix.SIOCSIFFLAGS, request)
}

// dropCapabilities takes the capabilities to stop the machine, to set its clock, to load modules and to access I/O
// ports from all programs that this process starts. Nothing that it needs itself depends on them.
func dropCapabilities() error {
	for _, capability := range []uintptr{
		unix.CAP_SYS_BOOT, unix.CAP_SYS_TIME, unix.CAP_SYS_MODULE, unix.CAP_SYS_RAWIO,
	} {
		if err := unix.Prctl(unix.PR_CAPBSET_DROP, capability, 0, 0, 0); err != nil {
			return fmt.Errorf("drop capability %d: %w", capability, err)
		}
	}
	return nil
}

// detachLoops detaches the loop devices whose files are temporary files of the sandbox, or files of a file system on
// such a device. A test that ends by a panic or a timeout leaves them attached, and the kernel then keeps their files
// in memory. Devices that are still open are detached when they are closed. Errors are ignored: they change no
// result.
func detachLoops() {
	nodes, _ := filepath.Glob("/dev/loop[0-9]*") // the pattern is valid
	for _, dir := range []string{"/tmp", os.TempDir()} {
		temporary, err := os.CreateTemp(dir, "")
		if err != nil {
			continue
		}
		var own unix.Stat_t
		if err := unix.Fstat(int(temporary.Fd()), &own); err == nil {
			detachLoopsOn(own.Dev, nodes)
		}
		_ = temporary.Close() // nothing was written
	}
}

// detachLoopsOn detaches the loop devices with files of a file system. Those that depend on others are detached first.
func detachLoopsOn(fileSystem uint64, nodes []string) {
	for _, node := range nodes {
		loop, err := os.Open(node)
		if err != nil {
			continue
		}
		var stat unix.Stat_t
		info, err := unix.IoctlLoopGetStatus64(int(loop.Fd()))
		if err == nil && info.Device == fileSystem && unix.Fstat(int(loop.Fd()), &stat) == nil {
			detachLoopsOn(stat.Rdev, nodes)
			_ = unix.IoctlSetInt(int(loop.Fd()), unix.LOOP_CLR_FD, 0)
		}
		_ = loop.Close() // nothing was written
	}
}

func copyFile(from, to string) error {
	in, err := os.Open(from)
	if err != nil {
		return err
	}
	defer in.Close()                                            //nolint:errcheck // only read
	out, err := os.OpenFile(to, os.O_CREATE|os.O_WRONLY, 0o755) //nolint:gosec // a program
	if err != nil {
		return err
	}
	_, err = io.Copy(out, in)
	return errors.Join(err, out.Close())
}

// copyTrace copies the list of reached mutants to descriptor 3, if the environment variable traceVariable requests it.
func copyTrace() error {
	if os.Getenv(traceVariable) == "" {
		return nil
	}
	text, err := os.ReadFile(sandboxTrace)
	if err != nil {
		return err
	}
	out := os.NewFile(3, "trace")
	_, err = out.Write(text)
	return errors.Join(err, out.Close())
}
