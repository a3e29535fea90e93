package main

import (
	"context"
	"os"
	"os/signal"
	"slices"

	"ironroot/initramfs"
	"ironroot/initramfs/debian"
	"ironroot/initramfs/netloaders"
	"ironroot/iso"
	"ironroot/uki"
)

// lockCmd writes the lock file.
type lockCmd struct {
	Out string `short:"o" default:"${lock}" placeholder:"FILE" help:"Lock file to write (default: ${lock})."`
	archiveFlags
}

// Run writes the lock file.
func (c *lockCmd) Run() error {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	o := c.options()
	o.Progress = os.Stderr
	archive, err := debian.Open(o)
	if err != nil {
		return err
	}
	lock, err := archive.Update(ctx, lockedPackages(), initramfs.IsKernelPackage)
	if err != nil {
		return err
	}
	return os.WriteFile(c.Out, []byte(lock.String()), 0o644)
}

// lockedPackages returns the packages that images are built from.
func lockedPackages() []string {
	packages := slices.Concat(initramfs.Packages(), []string{uki.Package + ":amd64", uki.Package + ":arm64"},
		iso.Packages("amd64"), iso.Packages("arm64"), netloaders.Packages())
	slices.Sort(packages)
	return slices.Compact(packages)
}
