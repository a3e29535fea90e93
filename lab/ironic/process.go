//go:build linux

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

// inside is the path of Options.Dir within the chroot.
const inside = "/srv/ironic"

// enterChroot runs a program in the chroot with its own mount namespace, so that nothing must be unmounted. Its
// arguments are the chroot, the directory of this Ironic, and the program.
const enterChroot = `
root=$1 dir=$2; shift 2
mount --make-rprivate /
mount -t proc proc "$root/proc"
mount --rbind /dev "$root/dev"
mount --rbind /sys "$root/sys"
mount --bind "$dir" "$root` + inside + `"
exec chroot "$root" env -i PATH=/usr/sbin:/usr/bin:/sbin:/bin HOME=/root LANG=C.UTF-8 "$@"
`

// process is a program in the chroot and the network namespace. It is the first process of a PID namespace, so the
// kernel kills all its descendants when it ends.
type process struct {
	cmd   *exec.Cmd
	ended chan struct{} // closed when the program has ended
	err   error         // the program's exit error
}

// inChroot starts a program whose output is written to a file in the directory log.
func (i *Ironic) inChroot(log string, program ...string) (*process, error) {
	out, err := os.Create(i.path("log/" + log))
	if err != nil {
		return nil, err
	}
	// stop ends the program with a signal first; a context would kill it at once.
	cmd := exec.CommandContext(context.Background(), "sh",
		append([]string{"-ec", enterChroot, "sh", i.chroot, i.options.Dir}, program...)...)
	cmd.Stdout, cmd.Stderr = out, out
	cmd.SysProcAttr = &syscall.SysProcAttr{
		Cloneflags: syscall.CLONE_NEWNS | syscall.CLONE_NEWPID, Pdeathsig: syscall.SIGKILL, Setpgid: true,
	}
	p := &process{cmd: cmd, ended: make(chan struct{})}
	wait, err := i.ns.Start(cmd)
	if err != nil {
		_ = out.Close() // the file is empty
		return nil, fmt.Errorf("%s: %w", program[0], err)
	}
	go func() {
		p.err = wait()
		_ = out.Close()
		close(p.ended)
	}()
	return p, nil
}

// wait waits until the program ends. If ctx ends first, it stops the program.
func (p *process) wait(ctx context.Context) error {
	select {
	case <-p.ended:
		return p.err
	case <-ctx.Done():
		return errors.Join(ctx.Err(), p.stop())
	}
}

// stop terminates the program, and kills it if it does not end.
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
