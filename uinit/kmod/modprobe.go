package kmod

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"strings"

	"golang.org/x/sys/unix"
)

// Modprobe is what the kernel starts as "/sbin/modprobe -q -- NAME" when it misses a file system, a RAID level, a cipher
// or the like. Of its arguments only names count; the kernel's options ask for silence.
func Modprobe(ctx context.Context, args []string) error {
	log := slog.New(slog.DiscardHandler)
	loader, err := OpenMachine(log)
	if err != nil {
		return err
	}
	var errs []error
	for _, name := range args {
		if !strings.HasPrefix(name, "-") {
			errs = append(errs, loader.Load(ctx, name))
		}
	}
	return errors.Join(errs...)
}

// OpenMachine opens the modules of the running kernel, with the parameters of its command line.
func OpenMachine(log *slog.Logger) (*Loader, error) {
	var uts unix.Utsname
	if err := unix.Uname(&uts); err != nil {
		return nil, fmt.Errorf("modules: uname: %w", err)
	}
	cmdline, err := os.ReadFile("/proc/cmdline")
	if err != nil {
		return nil, fmt.Errorf("modules: %w", err)
	}
	return Open(Options{Dir: Folder(unix.ByteSliceToString(uts.Release[:])), Params: ParseParams(string(cmdline)), Log: log})
}
