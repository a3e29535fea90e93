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
	name := b.params["ironroot.shell"]
	if name == "" || name == "0" {
		return
	}
	terminal := filepath.Join("/dev", filepath.Base(name))
	if paths := b.console.Paths(); name == "1" && len(paths) > 0 {
		terminal = paths[0]
	}
	if isVirtualTerminal(filepath.Base(terminal)) {
		b.console.Plain() // the screen and the shell would write over each other
	}
	for ctx.Err() == nil {
		if err := runShell(terminal); err != nil {
			b.log.Error("shell", "device", terminal, "err", err)
			return
		}
		time.Sleep(time.Second) // a shell that ends at once must not use all processor time
	}
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
