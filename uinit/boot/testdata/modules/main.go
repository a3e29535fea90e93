// Command modules is a ramdisk that logs which modules are loaded for its machine, and has the kernel ask for a file
// system.
package main

import (
	"context"
	"fmt"
	"os"
	"strings"

	"golang.org/x/sys/unix"

	"ironroot/uinit/boot"
)

func main() {
	boot.Main(func(_ context.Context, m *boot.Machine) error {
		<-m.Settled
		text, err := os.ReadFile("/proc/modules")
		if err != nil {
			return err
		}
		for line := range strings.Lines(string(text)) {
			name, rest, _ := strings.Cut(line, " ")
			taint := "none" // the last column, in parentheses, of modules that taint the kernel
			if _, flags, found := strings.Cut(rest, "("); found {
				taint = strings.TrimSpace(strings.TrimSuffix(strings.TrimSpace(flags), ")"))
			}
			m.Log.Info("loaded", "module", name, "taint", taint)
		}
		if value, err := os.ReadFile("/sys/module/libata/parameters/ignore_hpa"); err == nil {
			m.Log.Info("parameter", "module", "libata", "ignore_hpa", strings.TrimSpace(string(value)))
		}
		// Fails, as there is no such device; by then the kernel has asked for the file system.
		_ = unix.Mount("/dev/null", "/mnt", "vfat", 0, "")
		systems, err := os.ReadFile("/proc/filesystems")
		if err != nil {
			return err
		}
		if !strings.Contains(string(systems), "\tvfat\n") {
			return fmt.Errorf("no vfat among %q", systems)
		}
		m.Log.Info("the kernel got its file system")
		return nil
	})
}
