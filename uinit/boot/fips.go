//go:build linux

package boot

import (
	"crypto/fips140"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"ironroot/agent/config"
	"ironroot/uinit/kmod"
)

// The variable and its value with which Go starts a program in FIPS 140-3 mode.
const godebug, fipsOn = "GODEBUG", "fips140=on"

// enterFIPS executes the program again, in FIPS 140-3 mode, if the kernel has the parameter fips=1. Go reads the mode
// once, at the start of a process, and then tests its cryptographic module, whose failure stops the process. An error
// means that the mode is requested and not entered.
func enterFIPS() error {
	if fips140.Enabled() {
		return nil
	}
	// /proc stays mounted for mountAll. In a rescue it is mounted: another instance would show what is hidden there.
	if _, err := os.Stat("/proc/self"); err != nil {
		for _, c := range procEntries() {
			if err := c.Create(); err != nil && !errors.Is(err, unix.EBUSY) {
				return fmt.Errorf("%s: %w", c, err)
			}
		}
	}
	cmdline, err := os.ReadFile("/proc/cmdline")
	if err != nil {
		return err
	}
	if !wantsFIPS(string(cmdline)) {
		return nil
	}
	environment := append(withoutVariable(os.Environ(), godebug), godebug+"="+fipsOn)
	return fmt.Errorf("execute /init in FIPS 140-3 mode: %w", unix.Exec("/proc/self/exe", os.Args, environment))
}

// withoutVariable returns the environment without the variable key.
func withoutVariable(environment []string, key string) []string {
	return slices.DeleteFunc(environment, func(v string) bool { return strings.HasPrefix(v, key+"=") })
}

// wantsFIPS reports whether a kernel command line enables the mode. The kernel's own mode has the same parameter. As in
// the kernel, words behind "--" do not count: the firmware appends them to the command line of a unified kernel image.
func wantsFIPS(cmdline string) bool {
	params := config.ParseCmdline(strings.Join(kmod.KernelWords(cmdline), " "))
	return strings.Trim(params["fips"], "0") != ""
}
