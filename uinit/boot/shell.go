//go:build linux

package boot

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"syscall"
	"time"
)

// shellPath is the path of u-root's shell, which an image can lack.
const shellPath = "/bbin/gosh"

// shell runs a shell on one console if the kernel parameter ironroot.shell requests it, and again when it ends.
func (b *boot) shell(ctx context.Context) {
	terminal := b.shellTerminal()
	if terminal == "" {
		return
	}
	if isVirtualTerminal(filepath.Base(terminal)) {
		b.console.Plain() // the screen and the shell would write over each other
	}
	for ctx.Err() == nil && !b.leaving.Load() {
		if err := runShell(terminal); err != nil {
			b.log.Error("shell", "device", terminal, "err", err)
			return
		}
		time.Sleep(time.Second) // a shell that ends at once must not use all processor time
	}
}

// shellTerminal returns the path of the console with the shell, "" without one.
func (b *boot) shellTerminal() string {
	name := b.params["ironroot.shell"]
	if name == "" || name == "0" || b.rescued { // in a rescue, the machine is the user's
		return ""
	}
	if paths := b.console.Paths(); name == "1" && len(paths) > 0 {
		return paths[0]
	}
	return filepath.Join("/dev", filepath.Base(name))
}

// runShell runs a shell in its own session, with the terminal as its controlling terminal.
func runShell(terminal string) error {
	tty, err := os.OpenFile(terminal, os.O_RDWR|syscall.O_NOCTTY, 0)
	if err != nil {
		return err
	}
	defer tty.Close() //nolint:errcheck // the shell had its own
	process, err := os.StartProcess(shellPath, []string{"gosh"}, &os.ProcAttr{
		Dir:   "/root",
		Env:   os.Environ(),
		Files: []*os.File{tty, tty, tty},
		Sys:   &syscall.SysProcAttr{Setsid: true, Setctty: true, Ctty: 0},
	})
	if err != nil {
		return fmt.Errorf("%s: %w", shellPath, err)
	}
	_, err = process.Wait()
	return err
}
