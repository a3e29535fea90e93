package container

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"ironroot/internal/confine"
	"ironroot/internal/goroutine"
	"ironroot/internal/uevent"
)

// namespaces are the namespaces of a container: mounts, processes, IPC and host name.
const namespaces = unix.CLONE_NEWNS | unix.CLONE_NEWPID | unix.CLONE_NEWIPC | unix.CLONE_NEWUTS

// program is this program, which must be static: it is executed in the root of a container. Tests replace it.
var program = "/proc/self/exe"

// awaitProcess is awaitEnd. Tests replace it.
var awaitProcess = awaitEnd

// maxMessage limits a message of a container in bytes.
const maxMessage = 16 << 10

// Run runs a program of the image and waits for its end. When ctx or the program ends, all processes of the container
// are killed. When Run returns, none of them is left, and all their mounts are gone. The exception is a process that
// the kernel does not end within exitTimeout: the error wraps confine.ErrStillRunning then, and Close fails. The error
// of a program that has run and failed is an *ExitError. If the image lacks the program, the error wraps ErrNotFound.
func (b *Bundle) Run(ctx context.Context, s Spec) error {
	if s.MaxDuration > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeoutCause(ctx, s.MaxDuration, fmt.Errorf("%w: %s", ErrMaxDuration, s.MaxDuration))
		defer cancel()
	}
	p, err := b.plan(s)
	if err != nil {
		return fmt.Errorf("run a program of %s: %w", b.image.Name, err)
	}
	messages, err := uevent.Listen(0)
	if err != nil {
		return err
	}
	defer messages.Close() //nolint:errcheck // only received
	b.scratch.ran = true
	r := &runner{bundle: b, spec: s, plan: p, messages: messages, log: b.log}
	if err := r.run(ctx); err != nil {
		var exit *ExitError
		if errors.As(err, &exit) {
			return err
		}
		return fmt.Errorf("run %s of %s: %w", p.Args[0], b.image.Name, err)
	}
	return nil
}

// Available returns an error if the kernel lacks what Run needs.
func Available() error {
	for _, name := range []string{"mnt", "pid", "ipc", "uts", "user"} {
		if _, err := os.Stat("/proc/self/ns/" + name); err != nil {
			return fmt.Errorf("run containers: the kernel has no such namespaces: %w", err)
		}
	}
	actions, err := os.ReadFile("/proc/sys/user/max_user_namespaces")
	if err == nil && len(actions) > 0 && actions[0] == '0' {
		return errors.New("run containers: user.max_user_namespaces is 0")
	}
	return nil
}

// plan describes the container to its process 1.
func (b *Bundle) plan(s Spec) (*plan, error) {
	if err := b.checkPaths(s); err != nil {
		return nil, err
	}
	args, err := b.arguments(s)
	if err != nil {
		return nil, err
	}
	nodes, err := diskNodes(b.system, s.Disks)
	if err != nil {
		return nil, err
	}
	p := &plan{
		Root: filepath.Join(b.scratch.dir, rootDir), Args: args, Env: b.environment(s), Dir: b.image.Config.WorkingDir,
		User: b.image.Config.User, Host: b.host(), Privileged: s.Privileged, Devices: nodes, Files: b.files(s),
		Mounts: s.Mounts,
	}
	if s.Dir != "" {
		p.Dir = s.Dir
	}
	if s.User != "" {
		p.User = s.User
	}
	p.Dir = filepath.Join("/", p.Dir)
	if s.Layout != "" {
		p.Mounts = append(p.Mounts[:len(p.Mounts):len(p.Mounts)], Mount{
			Source: filepath.Join(b.scratch.dir, layoutDir), Target: s.Layout, ReadOnly: true,
		})
	}
	return p, nil
}

// runner runs a container.
type runner struct {
	bundle   *Bundle
	spec     Spec
	plan     *plan
	messages *uevent.Socket
	log      *slog.Logger

	process *os.Process
	stop    context.CancelCauseFunc // kills the container
	result  *message                // of the program, nil if process 1 reported none

	claiming sync.Mutex
	claimed  []string // disks; guarded by claiming
}

// pair returns two connected sockets: one for this process and one for the container.
func pair() (*net.UnixConn, *os.File, error) {
	fds, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_SEQPACKET|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return nil, nil, err
	}
	ours, theirs := os.NewFile(uintptr(fds[0]), "control"), os.NewFile(uintptr(fds[1]), "control")
	defer ours.Close() //nolint:errcheck // the connection has its own
	conn, err := net.FileConn(ours)
	if err != nil {
		return nil, nil, errors.Join(err, theirs.Close())
	}
	return conn.(*net.UnixConn), theirs, nil
}

// planInMemory returns a file with the plan.
func planInMemory(p *plan) (*os.File, error) {
	text, err := json.Marshal(p)
	if err != nil {
		return nil, err
	}
	fd, err := unix.MemfdCreate("plan", unix.MFD_CLOEXEC)
	if err != nil {
		return nil, err
	}
	f := os.NewFile(uintptr(fd), "plan")
	if _, err := f.Write(text); err != nil {
		return nil, errors.Join(err, f.Close())
	}
	return f, nil
}

func (r *runner) run(ctx context.Context) error {
	ctx, r.stop = context.WithCancelCause(ctx)
	defer r.stop(nil)
	running, ended := context.WithCancel(ctx)
	defer ended()
	control, in, err := r.start()
	if err != nil {
		return err
	}
	defer control.Close() //nolint:errcheck // the container has ended
	defer in.Close()      //nolint:errcheck // only read
	var output string
	group := goroutine.NewGroup()
	group.Go(func() error {
		output = readOutput(in, r.spec.Output)
		return nil
	})
	group.Go(func() error { return r.serve(ctx, control, ended) })
	var state *os.ProcessState
	waitErr := r.await(running, func() (err error) {
		state, err = r.process.Wait() // until all its processes have ended
		return err
	}, r.process.Kill)
	if errors.Is(waitErr, confine.ErrStillRunning) {
		// Its processes keep the other ends open.
		waitErr = errors.Join(fmt.Errorf("container %w", waitErr), control.SetReadDeadline(time.Now()),
			in.SetReadDeadline(time.Now()))
	}
	superviseErr := group.Wait()
	cause := context.Cause(ctx)
	switch err := errors.Join(waitErr, superviseErr); {
	case cause == nil && err == nil:
		return r.outcome(state, output)
	case cause == nil && errors.Is(waitErr, confine.ErrStillRunning):
		return r.leftBehind(waitErr, output)
	case cause == nil:
		return err
	case errors.Is(waitErr, confine.ErrStillRunning):
		return fmt.Errorf("%w: %w", cause, waitErr)
	case errors.Is(superviseErr, confine.ErrStillRunning) && !errors.Is(cause, confine.ErrStillRunning):
		return fmt.Errorf("%w: %w", cause, superviseErr)
	}
	return cause
}

// start starts process 1 of the container. It returns the connection to it, and its output.
func (r *runner) start() (control *net.UnixConn, in *os.File, err error) {
	var files []*os.File
	defer func() {
		for _, f := range files {
			_ = f.Close() // the process has its own
		}
		if err != nil && control != nil {
			err = errors.Join(err, control.Close())
		}
	}()
	null, err := os.Open(os.DevNull)
	if err != nil {
		return nil, nil, err
	}
	files = append(files, null)
	in, out, err := os.Pipe()
	if err != nil {
		return nil, nil, err
	}
	files = append(files, out)
	document, err := planInMemory(r.plan)
	if err != nil {
		return nil, nil, errors.Join(err, in.Close())
	}
	files = append(files, document)
	control, theirs, err := pair()
	if err != nil {
		return nil, nil, errors.Join(err, in.Close())
	}
	files = append(files, theirs)
	self, err := programTree()
	if err != nil {
		return control, nil, errors.Join(err, in.Close())
	}
	files = append(files, self)
	flags := uintptr(namespaces)
	if r.spec.NoNetwork {
		flags |= unix.CLONE_NEWNET
	}
	r.process, err = os.StartProcess(program, []string{setupName}, &os.ProcAttr{
		Dir: "/", Env: []string{}, Files: []*os.File{null, out, out, document, theirs, self},
		Sys: &syscall.SysProcAttr{Cloneflags: flags},
	})
	if err != nil {
		return control, nil, errors.Join(fmt.Errorf("start a process in namespaces of its own: %w", err), in.Close())
	}
	return control, in, nil
}

// programTree opens this program on a mount of its own, which is read-only and in no mount namespace, so that nobody
// can change its options.
func programTree() (*os.File, error) {
	tree, err := unix.OpenTree(unix.AT_FDCWD, program, unix.OPEN_TREE_CLONE|unix.OPEN_TREE_CLOEXEC)
	if err != nil {
		return nil, fmt.Errorf("mount %s: %w", program, err)
	}
	f := os.NewFile(uintptr(tree), program)
	attributes := unix.MountAttr{Attr_set: unix.MOUNT_ATTR_RDONLY | unix.MOUNT_ATTR_NOSUID | unix.MOUNT_ATTR_NODEV}
	if err := unix.MountSetattr(tree, "", unix.AT_EMPTY_PATH, &attributes); err != nil {
		return nil, errors.Join(fmt.Errorf("mount %s read-only: %w", program, err), f.Close())
	}
	return f, nil
}

// outcome returns the error of a container that has ended.
func (r *runner) outcome(state *os.ProcessState, output string) error {
	m := r.result
	switch {
	case m == nil:
		return fmt.Errorf("process 1 of the container ended without a report: %v: %s", state, output)
	case m.NotFound:
		return fmt.Errorf("%w: %s", ErrNotFound, r.plan.Args[0])
	case m.Error != "":
		return errors.New(m.Error)
	}
	status := unix.WaitStatus(m.Status)
	exit := &ExitError{Program: r.plan.Args[0], Code: -1, Output: output}
	switch {
	case status.Exited() && status.ExitStatus() == 0:
		return nil
	case status.Exited():
		exit.Code, exit.Status = status.ExitStatus(), "exit status "+strconv.Itoa(status.ExitStatus())
	default:
		exit.Status = "signal: " + status.Signal().String()
	}
	return exit
}

// leftBehind returns the error of a container whose process 1 has ended by itself, but one of whose other processes the
// kernel does not end.
func (r *runner) leftBehind(err error, output string) error {
	if failed := r.outcome(nil, output); failed != nil {
		return fmt.Errorf("%w; a process of the ended %w", failed, err)
	}
	return fmt.Errorf("the program ended with success, but a process of the ended %w", err)
}

// serve answers the messages of process 1, keeps the device nodes up to date and mounts file systems, until the
// container has ended. It calls ended when process 1 ends, which limits the wait for the other processes.
func (r *runner) serve(ctx context.Context, control *net.UnixConn, ended func()) error {
	ctx, cancel := context.WithCancel(ctx)
	group := goroutine.NewGroup()
	err := r.endAfter(r.receive(ctx, control, group))
	ended() // process 1 has closed the connection
	cancel()
	return errors.Join(err, group.Wait())
}

// endAfter kills the container after an error and returns the error. Otherwise a program could wait forever for the
// part of the supervision that has failed.
func (r *runner) endAfter(err error) error {
	if err != nil {
		r.stop(err)
	}
	return err
}

func (r *runner) receive(ctx context.Context, control *net.UnixConn, group *goroutine.Group) error {
	for ready := false; ; {
		m, listener, err := readMessage(control)
		if err != nil || m == nil {
			return err
		}
		if listener != nil && (!m.Listener || ready) { // it is not from process 1
			_ = listener.Close()
			listener = nil
		}
		switch {
		case listener != nil:
			group.Go(func() error {
				defer listener.Close() //nolint:errcheck // the container has ended
				return r.endAfter(confine.Serve(ctx, listener, r.decider()))
			})
		case m.Ready && !ready:
			ready = true
			if err := r.watchDevices(ctx, group); err != nil {
				return err
			}
			if _, err := control.Write([]byte{1}); err != nil {
				return err
			}
		default:
			r.result = m
		}
	}
}

// decider returns what decides the system calls of the container that wait for a reply.
func (r *runner) decider() confine.Decider {
	denials := confine.NewDenials(r.log)
	if !r.spec.Privileged {
		return denials
	}
	return &supervisor{log: r.log, init: r.process.Pid, runner: r, denials: denials}
}

// watchDevices keeps the device nodes of the container up to date while it runs.
func (r *runner) watchDevices(ctx context.Context, group *goroutine.Group) error {
	dir, err := unix.Open(fmt.Sprintf("/proc/%d/root/dev", r.process.Pid),
		unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC|unix.O_NOFOLLOW, 0)
	if err != nil {
		return fmt.Errorf("open /dev of the container: %w", err)
	}
	devices := &deviceDirectory{system: r.bundle.system, disks: r.spec.Disks, nodes: r.plan.Devices, dir: dir}
	group.Go(func() error {
		defer unix.Close(dir) //nolint:errcheck // only a position
		return r.endAfter(devices.watch(ctx, r.messages))
	})
	return nil
}

// readMessage reads a message and the descriptor that it may have. At the end of the connection the message is nil.
func readMessage(control *net.UnixConn) (*message, *os.File, error) {
	text, rights := make([]byte, maxMessage), make([]byte, unix.CmsgSpace(4))
	n, oobn, _, _, err := control.ReadMsgUnix(text, rights)
	if n == 0 {
		return nil, nil, nil //nolint:nilerr // the container has ended
	}
	if err != nil {
		return nil, nil, err
	}
	file, err := confine.ParseListener(rights[:oobn])
	if err != nil {
		return nil, nil, err
	}
	m := new(message)
	if err := json.Unmarshal(text[:n], m); err != nil {
		if file != nil {
			_ = file.Close() // nothing reads it
		}
		return nil, nil, fmt.Errorf("message of the container: %w", err)
	}
	return m, file, nil
}
