package ironic

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"syscall"
	"time"
)

// inside is where Ironic sees the folder that Options.Dir is.
const inside = "/srv/ironic"

// enterChroot runs in a mount namespace of its own, so that nothing needs to be unmounted. Its arguments are the
// chroot, the folder of this Ironic, and the program.
const enterChroot = `
root=$1 dir=$2; shift 2
mount --make-rprivate /
mount -t proc proc "$root/proc"
mount --rbind /dev "$root/dev"
mount --rbind /sys "$root/sys"
mount --bind "$dir" "$root` + inside + `"
exec chroot "$root" env -i PATH=/usr/sbin:/usr/bin:/sbin:/bin HOME=/root LANG=C.UTF-8 "$@"
`

// process is a program in the chroot and the namespace. It is the first process of a process namespace: when it ends
// the kernel ends whatever it started.
type process struct {
	cmd   *exec.Cmd
	ended chan struct{} // closed at its end
	err   error         // how it ended
}

// inChroot starts a program whose output goes to a file in the folder log.
func (i *Ironic) inChroot(log string, program ...string) (*process, error) {
	out, err := os.Create(i.path("log/" + log))
	if err != nil {
		return nil, err
	}
	// It is ended by stop, which asks first, and not by a context, which would kill.
	cmd := exec.CommandContext(context.Background(), "sh", append([]string{"-ec", enterChroot, "sh", i.chroot, i.options.Dir}, program...)...)
	cmd.Stdout, cmd.Stderr = out, out
	cmd.SysProcAttr = &syscall.SysProcAttr{
		Cloneflags: syscall.CLONE_NEWNS | syscall.CLONE_NEWPID, Pdeathsig: syscall.SIGKILL, Setpgid: true,
	}
	p := &process{cmd: cmd, ended: make(chan struct{})}
	wait, err := i.ns.Start(cmd)
	if err != nil {
		_ = out.Close() // is empty
		return nil, fmt.Errorf("%s: %w", program[0], err)
	}
	go func() {
		p.err = wait()
		_ = out.Close()
		close(p.ended)
	}()
	return p, nil
}

// wait waits for the program's end, or ends it with ctx.
func (p *process) wait(ctx context.Context) error {
	select {
	case <-p.ended:
		return p.err
	case <-ctx.Done():
		return errors.Join(ctx.Err(), p.stop())
	}
}

// stop asks the program to end and kills it when it does not.
func (p *process) stop() error {
	for _, signal := range []syscall.Signal{syscall.SIGTERM, syscall.SIGKILL} {
		if err := p.cmd.Process.Signal(signal); errors.Is(err, os.ErrProcessDone) {
			break
		} else if err != nil {
			return err
		}
		select {
		case <-p.ended:
			return nil
		case <-time.After(10 * time.Second):
		}
	}
	<-p.ended
	return nil
}
