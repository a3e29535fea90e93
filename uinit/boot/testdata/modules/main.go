// Command modules is a ramdisk that logs which modules are loaded for its machine, and has the kernel ask for a file
// system.
package main

import (
	"context"
	"fmt"
	"os"
	"strings"

	"golang.org/x/sys/unix"

	"ironroot/internal/uevent"
	"ironroot/uinit/boot"
)

func main() {
	boot.Main(func(ctx context.Context, m *boot.Machine) error {
		<-m.Settled
		events, err := uevent.Listen(0)
		if err != nil {
			return err
		}
		defer events.Close() //nolint:errcheck // only read
		logged := map[string]bool{}
		if err := logModules(m, logged); err != nil {
			return err
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
		for { // drivers find devices later too, for example behind USB
			e, err := events.Next(ctx)
			if err != nil {
				return err
			}
			if e.Subsystem != "module" {
				continue
			}
			if err := logModules(m, logged); err != nil {
				return err
			}
		}
	})
}

// logModules logs the loaded modules that are not in logged, and adds them to it.
func logModules(m *boot.Machine, logged map[string]bool) error {
	text, err := os.ReadFile("/proc/modules")
	if err != nil {
		return err
	}
	for line := range strings.Lines(string(text)) {
		name, rest, _ := strings.Cut(line, " ")
		if logged[name] {
			continue
		}
		logged[name] = true
		taint := "none" // the last column, in parentheses, of modules that taint the kernel
		if _, flags, found := strings.Cut(rest, "("); found {
			taint = strings.TrimSpace(strings.TrimSuffix(strings.TrimSpace(flags), ")"))
		}
		m.Log.Info("loaded", "module", name, "taint", taint)
	}
	return nil
}
