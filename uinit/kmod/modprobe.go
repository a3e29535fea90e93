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

// Modprobe serves a request of the kernel, which runs "/sbin/modprobe -q -- NAME" if it lacks a file system, a RAID
// level or a cipher. Options are ignored.
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

// OpenMachine opens the modules of the running kernel, with the module parameters of its command line.
func OpenMachine(log *slog.Logger) (*Loader, error) {
	var uts unix.Utsname
	if err := unix.Uname(&uts); err != nil {
		return nil, fmt.Errorf("modules: uname: %w", err)
	}
	cmdline, err := os.ReadFile("/proc/cmdline")
	if err != nil {
		return nil, fmt.Errorf("modules: %w", err)
	}
	return Open(Options{
		Dir: Dir(unix.ByteSliceToString(uts.Release[:])), Params: ParseParams(string(cmdline)), Log: log,
	})
}
