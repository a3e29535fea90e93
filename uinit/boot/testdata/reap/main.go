// Command reap is a ramdisk whose work starts programs: the status of its own child must reach it, and the orphan that
// the child leaves behind must not stay a zombie. The program is this one, under other names.
package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"time"

	"ironroot/uinit/boot"
)

func main() {
	switch filepath.Base(os.Args[0]) {
	case "parent": // leaves an orphan that outlives it, tells its number, ends with a status of its own
		orphan := &exec.Cmd{Path: "/init", Args: []string{"orphan"}}
		if err := orphan.Start(); err != nil {
			os.Exit(1)
		}
		fmt.Print(orphan.Process.Pid)
		os.Exit(42)
	case "orphan":
		time.Sleep(200 * time.Millisecond)
		os.Exit(7)
	}
	boot.Main(work)
}

func work(_ context.Context, m *boot.Machine) error {
	for i := range 5 {
		parent := &exec.Cmd{Path: "/init", Args: []string{"parent"}}
		out, err := parent.Output()
		var exit *exec.ExitError
		if !errors.As(err, &exit) || exit.ExitCode() != 42 {
			return fmt.Errorf("run %d: got %v, want exit status 42", i, err)
		}
		pid, err := strconv.Atoi(string(out))
		if err != nil {
			return err
		}
		gone := false
		for range 100 {
			if _, err := os.Stat(fmt.Sprintf("/proc/%d", pid)); err != nil {
				gone = true
				break
			}
			time.Sleep(50 * time.Millisecond)
		}
		if !gone {
			return fmt.Errorf("run %d: orphan %d is still there", i, pid)
		}
	}
	m.Log.Info("children and orphans are well")
	return nil
}
