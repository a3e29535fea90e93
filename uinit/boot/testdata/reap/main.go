// Command reap is a ramdisk whose work starts programs: the status of its own child must reach it, and the orphan that
// the child leaves behind must not stay a zombie. The program is this one, under other names.
package main

import (
	"context"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strconv"
	"time"

	"ironroot/uinit/boot"
)

func main() {
	switch filepath.Base(os.Args[0]) {
	case "parent": // leaves an orphan that outlives it, tells its number, ends with a status of its own
		orphan, err := start("orphan", os.Stdout)
		if err != nil {
			os.Exit(1)
		}
		fmt.Print(orphan.Pid)
		os.Exit(42)
	case "orphan":
		time.Sleep(200 * time.Millisecond)
		os.Exit(7)
	}
	boot.Main(work)
}

func start(name string, stdout *os.File) (*os.Process, error) {
	return os.StartProcess("/init", []string{name}, &os.ProcAttr{Files: []*os.File{nil, stdout, os.Stderr}})
}

func work(_ context.Context, m *boot.Machine) error {
	for i := range 5 {
		if err := once(); err != nil {
			return fmt.Errorf("run %d: %w", i, err)
		}
	}
	m.Log.Info("children and orphans are well")
	return nil
}

func once() error {
	r, w, err := os.Pipe()
	if err != nil {
		return err
	}
	parent, err := start("parent", w)
	if err != nil {
		return err
	}
	if err := w.Close(); err != nil {
		return err
	}
	out, err := io.ReadAll(r) // until the orphan ended, too
	if err != nil {
		return err
	}
	state, err := parent.Wait()
	if err != nil {
		return fmt.Errorf("the child's status: %w", err)
	}
	if state.ExitCode() != 42 {
		return fmt.Errorf("the child's status: got %d, want 42", state.ExitCode())
	}
	pid, err := strconv.Atoi(string(out))
	if err != nil {
		return err
	}
	for range 2400 {
		if _, err := os.Stat(fmt.Sprintf("/proc/%d", pid)); err != nil {
			return nil
		}
		time.Sleep(50 * time.Millisecond)
	}
	return fmt.Errorf("orphan %d is still there", pid)
}
