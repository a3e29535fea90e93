package container

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"ironroot/internal/confine"
)

// mountable are the file systems that a container may mount: file systems of disks, and file systems that contain only
// data that the container stores.
var mountable = []string{
	"ext2", "ext3", "ext4", "xfs", "btrfs", "vfat", "msdos", "exfat", "f2fs", "erofs", "squashfs", "iso9660", "udf",
	"tmpfs", "overlay", "devpts", "mqueue",
}

// reflected are file systems that show the whole machine. A container that mounts one gets its own, restricted one.
var reflected = map[string]string{"proc": "/proc", "sysfs": "/sys", "devtmpfs": "/dev"}

// mountCall are the arguments of mount(2).
type mountCall struct {
	Source, Target, Kind, Data string
	Flags                      uintptr
}

// supervisor decides the calls of a privileged container. It mounts file systems for the programs, and accepts setns(2)
// for the namespace that the caller is in, see joinsOwnNamespace. All other calls that wait for a reply fail.
type supervisor struct {
	log     *slog.Logger
	init    int     // process 1 of the container
	runner  *runner // waits for the end of mounters
	denials *confine.Denials
}

// Decide implements [confine.Decider]. When ctx ends, a mount that is under way is given up.
func (s *supervisor) Decide(ctx context.Context, l confine.Listener, n confine.Notification) error {
	switch call, _ := confine.CallName(n.Arch, n.Call); call {
	case confine.CallMount:
		mount, err := s.mount(ctx, l, n)
		if err != nil {
			s.log.Warn("container mounts no file system",
				"kind", clip(mount.Kind), "at", clip(mount.Target), "err", err)
		}
		return err
	case confine.CallSetns:
		if s.joinsOwnNamespace(l, n) {
			return nil
		}
	}
	return s.denials.Decide(ctx, l, n)
}

func clip(text string) string { return text[:min(len(text), 100)] }

// joinsOwnNamespace reports whether setns(2) is called for the mount namespace of process 1 by a process that is in
// that namespace and has the same root. bootc runs programs in this way. The agent's reply has no effect on the
// process, so its arguments need not be protected from changes after the check. Unlike setns(2), the reply leaves the
// working directory as it is.
func (s *supervisor) joinsOwnNamespace(l confine.Listener, n confine.Notification) bool {
	process, file := fmt.Sprintf("/proc/%d", n.PID), fmt.Sprint(uint32(n.Args[0]))
	target := process + "/fd/" + file
	if link, err := os.Readlink(target); err != nil {
		return false
	} else if kind := uint32(n.Args[1]); strings.HasPrefix(link, "mnt:") {
		if kind != 0 && kind != unix.CLONE_NEWNS {
			return false
		}
	} else {
		pid, err := statusField(process+"/fdinfo/"+file, "Pid:") // of a descriptor from pidfd_open(2)
		if err != nil || kind != unix.CLONE_NEWNS {
			return false
		}
		target = "/proc/" + pid + "/ns/mnt"
	}
	init := fmt.Sprintf("/proc/%d", s.init)
	return isSame(target, init+"/ns/mnt") && isSame(process+"/ns/mnt", init+"/ns/mnt") &&
		isSame(process+"/root", init+"/root") && l.CheckWaiting(n) == nil
}

// isSame reports whether two names lead to one file.
func isSame(a, b string) bool {
	one, err := os.Stat(a)
	two, otherErr := os.Stat(b)
	return err == nil && otherErr == nil && os.SameFile(one, two)
}

// statusField returns the last word of the line that begins with name, in a file of /proc.
func statusField(file, name string) (string, error) {
	text, err := os.ReadFile(file)
	if err != nil {
		return "", err
	}
	for line := range strings.Lines(string(text)) {
		rest, ok := strings.CutPrefix(line, name)
		if fields := strings.Fields(rest); ok && len(fields) > 0 {
			return fields[len(fields)-1], nil
		}
	}
	return "", fmt.Errorf("%s has no %s", file, name)
}

// mount reads the arguments of a call and mounts the file system, if a container may mount it. The arguments are read
// once, so that the container cannot change them after they were checked.
func (s *supervisor) mount(ctx context.Context, l confine.Listener, n confine.Notification) (mountCall, error) {
	process := fmt.Sprintf("/proc/%d", n.PID)
	var files []*os.File
	defer func() {
		for _, f := range files {
			_ = f.Close() // only opened
		}
	}()
	for _, name := range []string{"/ns/mnt", "/root", "/cwd"} {
		fd, err := unix.Open(process+name, openFlags(name), 0)
		if err != nil {
			return mountCall{}, err
		}
		files = append(files, os.NewFile(uintptr(fd), name))
	}
	call, err := readCall(process, n)
	if err != nil {
		return call, err
	}
	allowed, err := hasAdmin(process)
	if err != nil {
		return call, err
	}
	if err := l.CheckWaiting(n); err != nil {
		return call, err
	}
	if !allowed {
		return call, fmt.Errorf("the program lacks CAP_SYS_ADMIN: %w", unix.EPERM)
	}
	if err := call.restrict(); err != nil {
		return call, err
	}
	return call, s.runMounter(ctx, call, files)
}

// hasAdmin reports whether a process has CAP_SYS_ADMIN. The mounter has it, so the kernel does not check the process
// itself. No process of a container is in another user namespace, where the capability would mean less.
func hasAdmin(process string) (bool, error) {
	text, err := statusField(process+"/status", "CapEff:")
	if err != nil {
		return false, err
	}
	effective, err := strconv.ParseUint(text, 16, 64)
	return effective&(1<<unix.CAP_SYS_ADMIN) != 0, err
}

// openFlags returns the flags to open a file of a process.
func openFlags(name string) int {
	if name == "/ns/mnt" {
		return unix.O_RDONLY | unix.O_CLOEXEC
	}
	return unix.O_PATH | unix.O_DIRECTORY | unix.O_CLOEXEC
}

// readCall reads the arguments of a call from the memory of its process.
func readCall(process string, n confine.Notification) (call mountCall, err error) {
	memory, err := os.Open(process + "/mem")
	if err != nil {
		return call, err
	}
	defer memory.Close() //nolint:errcheck // only read
	call.Flags = uintptr(uint32(n.Args[3]))
	for _, text := range []struct {
		to      *string
		address uint64
		limit   int
	}{
		{&call.Source, n.Args[0], unix.PathMax},
		{&call.Target, n.Args[1], unix.PathMax},
		{&call.Kind, n.Args[2], unix.PathMax},
		{&call.Data, n.Args[4], os.Getpagesize()},
	} {
		if *text.to, err = readText(memory, text.address, text.limit); err != nil {
			return call, err
		}
	}
	call.Target = ofProcess(call.Target, process)
	call.Source = ofProcess(call.Source, process)
	return call, nil
}

// readText reads a text that ends with a zero byte. The address 0 is an empty text.
func readText(memory io.ReaderAt, address uint64, limit int) (string, error) {
	if address == 0 {
		return "", nil
	}
	if address > 1<<62 {
		return "", unix.EFAULT
	}
	var text []byte
	for len(text) < limit {
		// Not across a page: the next one may not exist.
		at := address + uint64(len(text))
		piece := make([]byte, min(4096-int(at%4096), limit-len(text)))
		n, err := memory.ReadAt(piece, int64(at))
		if n == 0 && err != nil {
			return "", unix.EFAULT
		}
		if end := bytes.IndexByte(piece[:n], 0); end >= 0 {
			return string(append(text, piece[:end]...)), nil
		}
		text = append(text, piece[:n]...)
	}
	return "", unix.ENAMETOOLONG
}

// ofProcess replaces /proc/self at the beginning of a path by the number that the process has in its container.
func ofProcess(name, process string) string {
	rest, ok := strings.CutPrefix(name, "/proc/self/")
	if !ok {
		return name
	}
	number, err := statusField(process+"/status", "NSpid:")
	if err != nil {
		return name
	}
	return "/proc/" + number + "/" + rest
}

// restrict checks a call and changes it so that the container reaches no other devices than its own.
func (c *mountCall) restrict() error {
	const upper = 0xffff0000
	if c.Flags&upper == confine.MountMagic {
		c.Flags &^= upper
	}
	if c.Flags&unix.MS_REMOUNT != 0 {
		c.Flags |= unix.MS_NODEV
		return nil
	}
	if c.Flags&(unix.MS_BIND|unix.MS_MOVE|unix.MS_SHARED|unix.MS_PRIVATE|unix.MS_SLAVE|unix.MS_UNBINDABLE) != 0 {
		return fmt.Errorf("flags %#x: %w", c.Flags, unix.EINVAL) // the filter does not send such calls
	}
	if source, ok := reflected[c.Kind]; ok {
		c.Source, c.Kind, c.Data, c.Flags = source, "", "", unix.MS_BIND|unix.MS_REC
		return nil
	}
	if !slices.Contains(mountable, c.Kind) {
		return fmt.Errorf("a container may not mount it: %w", unix.EPERM)
	}
	// The journal of ext4 and the log of XFS can be on other devices, which are named by their numbers.
	for option := range strings.SplitSeq(c.Data, ",") {
		name, _, _ := strings.Cut(option, "=")
		if slices.Contains([]string{"journal_dev", "journal_path", "logdev", "rtdev", "device"}, name) {
			return fmt.Errorf("option %s: a container may not use it: %w", name, unix.EPERM)
		}
	}
	if c.Kind != "devpts" {
		c.Flags |= unix.MS_NODEV
	}
	return nil
}

// Descriptors of a mounter.
const (
	mounterNamespace = 3 + iota
	mounterRoot
	mounterDir
)

// runMounter mounts in the mount namespace, root and directory of a process. When ctx ends, the mounter is killed. If
// the kernel does not end it, the error wraps confine.ErrStillRunning.
func (s *supervisor) runMounter(ctx context.Context, call mountCall, files []*os.File) error {
	text, err := json.Marshal(call)
	if err != nil {
		return err
	}
	in, out, err := os.Pipe()
	if err != nil {
		return err
	}
	p, err := os.StartProcess(program, []string{mountName}, &os.ProcAttr{
		Dir: "/", Env: []string{}, Files: append([]*os.File{in, nil, nil}, files...),
	})
	err = errors.Join(err, in.Close())
	if p == nil {
		return errors.Join(err, out.Close())
	}
	var state *os.ProcessState
	err = errors.Join(err, s.runner.await(ctx, func() error {
		_, writeErr := out.Write(text) // it reads all, or the write fails
		closeErr := out.Close()
		ended, waitErr := p.Wait()
		state = ended
		return errors.Join(writeErr, closeErr, waitErr)
	}, p.Kill))
	switch {
	case errors.Is(err, confine.ErrStillRunning):
		return fmt.Errorf("mounter of the container %w", err)
	case err != nil:
		return err
	case ctx.Err() != nil:
		return context.Cause(ctx)
	}
	if code := state.ExitCode(); code != 0 {
		return unix.Errno(max(code, 1)) //nolint:unconvert // -1 after a signal
	}
	return nil
}

// mounter mounts a file system and ends with the error as exit code.
func mounter() error {
	err := mountFor()
	if err == nil {
		return nil
	}
	errno := unix.EPERM
	_ = errors.As(err, &errno)
	os.Exit(int(errno))
	return nil
}

func mountFor() error {
	var call mountCall
	if err := json.NewDecoder(os.Stdin).Decode(&call); err != nil {
		return unix.EINVAL
	}
	if err := unix.Unshare(unix.CLONE_FS); err != nil {
		return err
	}
	if err := unix.Setns(mounterNamespace, unix.CLONE_NEWNS); err != nil {
		return err
	}
	// This is the root of the container, even if the process has entered another one.
	own := -1
	if call.Flags&(unix.MS_BIND|unix.MS_REMOUNT) == unix.MS_BIND {
		fd, err := unix.OpenTree(unix.AT_FDCWD, call.Source,
			unix.OPEN_TREE_CLONE|unix.OPEN_TREE_CLOEXEC|unix.AT_RECURSIVE)
		if err != nil {
			return err
		}
		own = fd
	}
	for _, enter := range []func() error{
		func() error { return unix.Fchdir(mounterRoot) },
		func() error { return unix.Chroot(".") },
		func() error { return unix.Fchdir(mounterDir) },
	} {
		if err := enter(); err != nil {
			return err
		}
	}
	if own >= 0 {
		return unix.MoveMount(own, "", unix.AT_FDCWD, call.Target, unix.MOVE_MOUNT_F_EMPTY_PATH)
	}
	return unix.Mount(call.Source, call.Target, call.Kind, call.Flags, call.Data)
}
