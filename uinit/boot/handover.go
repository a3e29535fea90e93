//go:build linux

package boot

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"ironroot/agent/vmedia"
	"ironroot/internal/confine"
	"ironroot/internal/pause"
	"ironroot/internal/timelimit"
	"ironroot/storage/sysfs"
	"ironroot/uinit/boot/layout"
)

const (
	// endTimeout limits the wait for the end of all other processes.
	endTimeout = 20 * time.Second
	// endPause is the pause between two checks whether they have ended. The kernel reports only the end of children.
	endPause = 50 * time.Millisecond
)

// removalLimits limit the removal of virtual media. A RAM disk can be large, so that it has no limit in total.
var removalLimits = timelimit.Limits{NoProgress: 20 * time.Second, Grace: 5 * time.Second}

// configDirs are the directories with the operator's configuration of the agent, and with network data of the
// provisioning network.
var configDirs = []string{
	"/etc/ironic-python-agent", "/etc/ironic-python-agent.d", "/mnt/config", "/openstack", "/root/.ssh",
}

// handOver hands the machine over to the user of a rescue, who becomes root. It removes what the user must not see,
// ends all other processes, and executes this program again: the memory of the new process contains nothing of the
// agent. It returns only after an error.
func (b *boot) handOver(ctx context.Context) error {
	b.log.Info("rescue: process 1 starts again without the agent")
	b.EndLogins()
	if err := b.removeMedia(ctx); err != nil { // one was attached since PrepareRescue, or Ironic ejects it now
		b.log.Error("virtual media not removed again", "err", err)
	}
	if err := b.hide(); err != nil { // something has changed since PrepareRescue: nobody may log in
		return err
	}
	if err := lockKernel(); err != nil {
		b.log.Warn("kernel not locked down: root can read its memory through a module", "err", err)
	}
	b.leaving.Store(true)
	b.console.Plain()
	b.flush()
	if err := openConsole(); err != nil { // the process at the other end of standard error ends, too
		b.log.Warn("standard error not redirected", "err", err)
	}
	// The new process does this again: a goroutine can start another process now.
	if err := endProcesses(ctx); err != nil {
		b.log.Error("processes of the agent not ended", "err", err)
	}
	b.flush()
	return execute("/init", "/init")
}

// execute replaces the program of this process. The new one has the name as its only argument, no environment, and the
// standard files. It returns only after an error.
func execute(program, name string) error {
	if err := confine.CloseFiles(); err != nil {
		return err
	}
	return fmt.Errorf("execute %s: %w", program, syscall.Exec(program, []string{name}, []string{}))
}

// PrepareRescue implements [agent.Logins]. The agent does not need what is hidden: it has read its configuration.
func (b *boot) PrepareRescue(ctx context.Context) error {
	if err := checkLogin(ctx, "/"); err != nil {
		return err
	}
	if err := b.removeMedia(ctx); err != nil {
		return err
	}
	return b.hide()
}

// removeMedia removes media with secrets of the operator.
func (b *boot) removeMedia(ctx context.Context) error {
	err := b.removal.run(ctx, func(ctx context.Context) error {
		return vmedia.Remove(ctx, sysfs.Root{}, b.params, b.log)
	})
	if err != nil {
		return fmt.Errorf("hide virtual media: %w", err)
	}
	return nil
}

// removal runs removals of virtual media one after another. One that does not return in time continues in the
// background. The channel has a capacity of one, and contains a value while a removal runs.
type removal chan struct{}

// run runs a removal within removalLimits, after a former one has ended.
func (r removal) run(ctx context.Context, remove func(context.Context) error) error {
	return timelimit.Run(ctx, removalLimits, func(ctx context.Context) error {
		select {
		case r <- struct{}{}:
		case <-ctx.Done():
			return errors.New("a former removal still runs")
		}
		defer func() { <-r }()
		return remove(ctx)
	})
}

// hide removes secrets of the operator from the interfaces of the kernel and from files. It can be called again: the
// command line is masked only the first time.
func (b *boot) hide() error {
	b.masking.Do(func() { b.maskErr = confine.Mask(b.journal.Clean(b.cmdline)) }) // covers cannot be covered again
	if b.maskErr != nil {
		return fmt.Errorf("hide kernel command line: %w", b.maskErr)
	}
	if err := maskSignedCmdline("/", b.journal.Clean); err != nil {
		return fmt.Errorf("hide kernel command line of the image: %w", err)
	}
	if err := cleanKernelLog(b.journal.CleanKernelLog); err != nil {
		return fmt.Errorf("hide kernel log: %w", err)
	}
	if err := removeFiles("/"); err != nil { // last: after another error, the agent still needs them
		return fmt.Errorf("hide configuration: %w", err)
	}
	return nil
}

// maskSignedCmdline replaces the copy of the command line that a unified kernel image contains by what clean returns of
// it. This program reads the file again when it executes itself, and needs none of the secrets.
func maskSignedCmdline(root string, clean func(string) string) error {
	name := filepath.Join(root, layout.SignedCmdline)
	text, err := os.ReadFile(name)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	masked := clean(string(text))
	if masked == string(text) {
		return nil
	}
	return os.WriteFile(name, []byte(masked), 0o444)
}

// removeFiles removes the operator's files below root.
func removeFiles(root string) error {
	var failed []error
	for _, dir := range configDirs {
		failed = append(failed, os.RemoveAll(filepath.Join(root, dir)))
	}
	return errors.Join(failed...)
}

// lockKernel makes the kernel refuse to show its memory, also to root: see kernel_lockdown(7).
func lockKernel() error {
	const dir, level = "/sys/kernel/security", "confidentiality"
	err := unix.Mount("securityfs", dir, "securityfs", unix.MS_NOSUID|unix.MS_NODEV|unix.MS_NOEXEC, "")
	if err != nil && !errors.Is(err, unix.EBUSY) { // EBUSY: it is mounted
		return fmt.Errorf("mount %s: %w", dir, err)
	}
	return os.WriteFile(filepath.Join(dir, "lockdown"), []byte(level), 0)
}

// openConsole makes the console standard input, output and error, as the kernel does for process 1.
func openConsole() error {
	f, err := os.OpenFile("/dev/console", os.O_RDWR|unix.O_NOCTTY, 0)
	if err != nil {
		if f, err = os.OpenFile(os.DevNull, os.O_RDWR, 0); err != nil {
			return err
		}
	}
	defer f.Close() //nolint:errcheck // its copies stay open
	for _, standard := range []*os.File{os.Stdin, os.Stdout, os.Stderr} {
		if err := unix.Dup3(int(f.Fd()), int(standard.Fd()), 0); err != nil {
			return err
		}
	}
	return nil
}

// endProcesses kills all processes but this one, and waits until the kernel has ended them.
func endProcesses(ctx context.Context) error {
	limited, cancel := context.WithTimeout(ctx, endTimeout)
	defer cancel()
	for {
		if err := unix.Kill(-1, unix.SIGKILL); err != nil && !errors.Is(err, unix.ESRCH) { // ESRCH: there is none
			return fmt.Errorf("kill all processes: %w", err)
		}
		left, err := otherProcesses("/proc")
		if err != nil || len(left) == 0 {
			return err
		}
		if pause.For(limited, endPause) != nil {
			return fmt.Errorf("still running after %v: processes %v", endTimeout, left)
		}
	}
}

// otherProcesses returns the numbers of all processes that run programs, except process 1.
func otherProcesses(proc string) ([]int, error) {
	entries, err := filepath.Glob(filepath.Join(proc, "[0-9]*"))
	if err != nil {
		return nil, err
	}
	var others []int
	for _, entry := range entries {
		stat, err := os.ReadFile(filepath.Join(entry, "stat"))
		if errors.Is(err, fs.ErrNotExist) || errors.Is(err, unix.ESRCH) {
			continue // it has ended
		}
		if err != nil {
			return nil, err
		}
		process, err := sysfs.ParseProcess(stat)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", entry, err)
		}
		if process.PID != 1 && runsProgram(process) {
			others = append(others, process.PID)
		}
	}
	return others, nil
}

// runsProgram reports whether a process runs a program: it is no thread of the kernel, and has not ended.
func runsProgram(p sysfs.Process) bool {
	const kernelThread = 0x00200000 // PF_KTHREAD
	return p.Flags&kernelThread == 0 && p.State != 'Z' && p.State != 'X'
}
