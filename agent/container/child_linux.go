package container

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"os"
	"os/signal"
	"path"
	"runtime"
	"slices"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"

	"ironroot/internal/confine"
	"ironroot/internal/goroutine"
)

// The first arguments of this program's processes, instead of its name.
const (
	setupName = "container"         // process 1 of a container before the namespaces are complete
	initName  = "container-init"    // process 1 of a container
	lockName  = "container-lock"    // holds a mount namespace whose mounts are locked
	mountName = "container-mounter" // mounts a file system for a program of a container
)

// Descriptors of a process that belongs to a container.
const (
	planFile    = 3 // a file with a plan
	controlFile = 4 // a socket for messages
	programFile = 5 // this program, on a mount that is read-only
)

// exitNotRun is the exit code of a process that could not do its work.
const exitNotRun = 120

// plan describes a container to its process 1.
type plan struct {
	Root       string // directory with the image
	Args       []string
	Env        []string
	Dir        string // working directory
	User       string // USER[:GROUP], numbers or names in the image
	Host       string // host name
	Privileged bool
	Devices    []confine.DeviceNode
	Files      map[string]File
	Mounts     []Mount
}

// message is a report of a container's process 1.
type message struct {
	Listener bool   // a descriptor comes with it, which receives the system calls that wait for a reply
	Ready    bool   // it waits for a reply of one byte, and then starts the program
	Error    string // why the program did not run
	NotFound bool   // because the image does not have it
	Status   uint32 // of the program, as wait(2) returns it
}

// Child does the work of a container's process and ends, if this process was started as one. Otherwise it returns.
// Every program that runs containers must call it first.
func Child() {
	var run func() error
	switch os.Args[0] {
	case setupName:
		run = setup
	case initName:
		run = initProcess
	case lockName:
		run = lock
	case mountName:
		run = mounter
	default:
		return
	}
	runtime.LockOSThread() // namespaces and capabilities belong to threads
	err := run()
	if err == nil {
		os.Exit(0)
	}
	_, _ = os.Stderr.WriteString(os.Args[0] + ": " + err.Error() + "\n")
	os.Exit(exitNotRun)
}

// readPlan reads the plan of the container.
func readPlan() (*plan, error) {
	f := os.NewFile(planFile, "plan")
	text, err := io.ReadAll(io.NewSectionReader(f, 0, math.MaxInt64))
	if err != nil {
		return nil, err
	}
	p := new(plan)
	return p, json.Unmarshal(text, p)
}

// send sends a message on the control socket, with a descriptor unless it is negative.
func send(m message, descriptor int) error {
	text, err := json.Marshal(m)
	if err != nil {
		return err
	}
	var rights []byte
	if descriptor >= 0 {
		rights = unix.UnixRights(descriptor)
	}
	return unix.Sendmsg(controlFile, text, rights, nil, unix.MSG_NOSIGNAL)
}

// setup makes the container's file system and becomes its process 1. It runs in namespaces of its own. It returns only
// after an error.
func setup() (err error) {
	defer func() { _ = send(message{Error: err.Error()}, -1) }()
	p, err := readPlan()
	if err != nil {
		return fmt.Errorf("read plan: %w", err)
	}
	// If memory is short, the kernel ends the container instead of the agent.
	if err := os.WriteFile("/proc/self/oom_score_adj", []byte("1000"), 0); err != nil {
		return err
	}
	if err := p.mount(); err != nil {
		return err
	}
	if err := confine.ReplaceStdin(); err != nil {
		return err
	}
	if err := unix.Sethostname([]byte(p.Host)); err != nil {
		return fmt.Errorf("set host name: %w", err)
	}
	if err := lockMounts(); err != nil {
		return err
	}
	policy := confine.ProgramPolicy()
	if p.Privileged {
		policy = confine.InstallerPolicy()
	}
	listener, err := policy.Apply()
	if err == nil {
		err = send(message{Listener: true}, listener)
	}
	if err != nil {
		return err
	}
	if err := confine.LimitCapabilities(p.keeps); err != nil {
		return err
	}
	if err := unix.CloseRange(controlFile+1, math.MaxUint32, unix.CLOSE_RANGE_CLOEXEC); err != nil {
		return fmt.Errorf("close files at exec: %w", err)
	}
	// A program of the image sees /proc/1/exe. By it, it could change owner, mode and attributes of the ramdisk's
	// agent, if the mount were writable.
	err = unix.Exec(fmt.Sprintf("/proc/self/fd/%d", programFile), []string{initName}, []string{})
	return fmt.Errorf("become process 1: %w", err)
}

// removedCapabilities are the capabilities(7) that a privileged container does not have: with them it could load a
// module, replace the kernel, read its log or memory, access other devices than its own, open files of the ramdisk by
// their handles, trace processes, set the clock, or read and change the agent's network traffic.
var removedCapabilities = []int{
	unix.CAP_SYS_MODULE, unix.CAP_SYS_BOOT, unix.CAP_SYSLOG, unix.CAP_MKNOD, unix.CAP_SYS_RAWIO, unix.CAP_BPF,
	unix.CAP_PERFMON, unix.CAP_CHECKPOINT_RESTORE, unix.CAP_MAC_ADMIN, unix.CAP_MAC_OVERRIDE,
	unix.CAP_DAC_READ_SEARCH, unix.CAP_NET_ADMIN, unix.CAP_NET_RAW, unix.CAP_SYS_PTRACE, unix.CAP_SYS_TIME,
	unix.CAP_WAKE_ALARM, unix.CAP_BLOCK_SUSPEND, unix.CAP_SYS_PACCT, unix.CAP_AUDIT_CONTROL, unix.CAP_AUDIT_READ,
}

// ordinaryCapabilities are the capabilities of a container that is not privileged: podman's default.
var ordinaryCapabilities = []int{
	unix.CAP_CHOWN, unix.CAP_DAC_OVERRIDE, unix.CAP_FOWNER, unix.CAP_FSETID, unix.CAP_KILL,
	unix.CAP_NET_BIND_SERVICE, unix.CAP_SETFCAP, unix.CAP_SETGID, unix.CAP_SETPCAP, unix.CAP_SETUID,
	unix.CAP_SYS_CHROOT,
}

// keeps reports whether the container has a capability.
func (p *plan) keeps(c int) bool {
	if p.Privileged {
		return !slices.Contains(removedCapabilities, c)
	}
	return slices.Contains(ordinaryCapabilities, c)
}

// enterRoot makes a directory the root of this process.
func enterRoot(dir string) error {
	if err := unix.Mount(dir, dir, "", unix.MS_BIND, ""); err != nil {
		return fmt.Errorf("mount %s: %w", dir, err)
	}
	// Device nodes of the image are not devices.
	if err := unix.Mount("", dir, "", unix.MS_REMOUNT|unix.MS_BIND|unix.MS_NODEV, ""); err != nil {
		return fmt.Errorf("mount %s without devices: %w", dir, err)
	}
	if err := unix.Chdir(dir); err != nil {
		return err
	}
	// Moving it over the old root makes the old root unreachable; pivot_root(2) does not work on an initramfs.
	if err := unix.Mount(".", "/", "", unix.MS_MOVE, ""); err != nil {
		return fmt.Errorf("move %s to /: %w", dir, err)
	}
	if err := unix.Chroot("."); err != nil {
		return fmt.Errorf("enter %s: %w", dir, err)
	}
	return nil
}

// lockMounts makes the mounts of this thread's mount namespace inseparable: they cannot be unmounted or made writable,
// and what they cover stays covered, even for a program with CAP_SYS_ADMIN. The kernel locks mounts when it copies them
// into a mount namespace that belongs to another user namespace (mount_namespaces(7)). This thread joins such a mount
// namespace, but keeps its own user namespace.
func lockMounts() (err error) {
	in, out, err := os.Pipe()
	if err != nil {
		return err
	}
	holder, err := os.StartProcess("/proc/self/exe", []string{lockName}, &os.ProcAttr{
		Dir: "/", Files: []*os.File{in, nil, nil},
		Sys: &syscall.SysProcAttr{Cloneflags: unix.CLONE_NEWUSER | unix.CLONE_NEWNS},
	})
	err = errors.Join(err, in.Close())
	if err != nil {
		return fmt.Errorf("lock mounts: start a process in a user namespace: %w", errors.Join(err, out.Close()))
	}
	namespace, err := os.Open(fmt.Sprintf("/proc/%d/ns/mnt", holder.Pid))
	_ = out.Close() // the holder ends
	_ = holder.Kill()
	if _, waitErr := holder.Wait(); waitErr != nil {
		err = errors.Join(err, waitErr)
	}
	if err != nil {
		return fmt.Errorf("lock mounts: %w", err)
	}
	defer namespace.Close() //nolint:errcheck // only opened
	if err := unix.Unshare(unix.CLONE_FS); err != nil {
		return fmt.Errorf("lock mounts: %w", err)
	}
	if err := unix.Setns(int(namespace.Fd()), unix.CLONE_NEWNS); err != nil {
		return fmt.Errorf("lock mounts: join namespace: %w", err)
	}
	return nil
}

// lock waits until it is ended.
func lock() error {
	_, err := io.Copy(io.Discard, os.Stdin)
	return err
}

// initProcess is process 1 of a container. It runs the program and returns when it has ended, which ends all other
// processes of the container.
func initProcess() error {
	// The program gets neither.
	unix.CloseOnExec(planFile)
	unix.CloseOnExec(controlFile)
	signal.Ignore(unix.SIGTERM, unix.SIGINT, unix.SIGHUP, unix.SIGPIPE)
	p, err := readPlan()
	if err != nil {
		return fmt.Errorf("read plan: %w", err)
	}
	if err := send(message{Ready: true}, -1); err != nil {
		return fmt.Errorf("report: %w", err)
	}
	var reply [1]byte
	if n, err := unix.Read(controlFile, reply[:]); err != nil || n != 1 {
		return fmt.Errorf("wait for the agent: got %d bytes: %w", n, err)
	}
	goroutine.Go(func() error { // the agent sends nothing else: it has ended
		_, _ = unix.Read(controlFile, reply[:])
		os.Exit(exitNotRun)
		return nil
	}, nil)
	pid, err := p.start()
	if err != nil {
		_ = send(message{Error: err.Error(), NotFound: errors.Is(err, ErrNotFound)}, -1)
		return err
	}
	for {
		var status unix.WaitStatus
		ended, err := unix.Wait4(-1, &status, 0, nil)
		switch {
		case err == unix.EINTR: //nolint:errorlint // not wrapped
		case err != nil:
			return fmt.Errorf("wait: %w", err)
		case ended == pid:
			return send(message{Status: uint32(status)}, -1)
		}
	}
}

// start starts the program.
func (p *plan) start() (pid int, err error) {
	program, err := p.lookPath()
	if err != nil {
		return 0, err
	}
	credential, err := p.credential()
	if err != nil {
		return 0, err
	}
	if err := os.MkdirAll(p.Dir, 0o755); err != nil {
		return 0, fmt.Errorf("working directory: %w", err)
	}
	process, err := os.StartProcess(program, p.Args, &os.ProcAttr{
		Dir: p.Dir, Env: p.Env, Files: []*os.File{os.Stdin, os.Stdout, os.Stderr},
		Sys: &syscall.SysProcAttr{Setsid: true, Credential: credential},
	})
	if err != nil {
		return 0, fmt.Errorf("start %s: %w", program, err)
	}
	pid = process.Pid
	return pid, process.Release() // all children are waited for together
}

// lookPath returns the path of the program.
func (p *plan) lookPath() (string, error) {
	name := p.Args[0]
	if strings.Contains(name, "/") {
		if !path.IsAbs(name) {
			name = path.Join(p.Dir, name)
		}
		if err := unix.Access(name, unix.X_OK); err != nil {
			return "", fmt.Errorf("%w: %s: %w", ErrNotFound, name, err)
		}
		return name, nil
	}
	for _, entry := range p.Env {
		list, ok := strings.CutPrefix(entry, "PATH=")
		if !ok {
			continue
		}
		for dir := range strings.SplitSeq(list, ":") {
			if program := path.Join(dir, name); path.IsAbs(program) && isExecutable(program) {
				return program, nil
			}
		}
	}
	return "", fmt.Errorf("%w: %s", ErrNotFound, name)
}

func isExecutable(name string) bool {
	info, err := os.Stat(name)
	return err == nil && info.Mode().IsRegular() && unix.Access(name, unix.X_OK) == nil
}
