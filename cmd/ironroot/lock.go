package main

import (
	"context"
	"fmt"
	"os"
	"os/signal"
	"slices"

	"ironroot/initramfs"
	"ironroot/initramfs/debian"
	"ironroot/initramfs/firmware"
	"ironroot/iso"
	"ironroot/uki"
)

// archiveFlags are the flags of commands that fetch Debian packages.
type archiveFlags struct {
	Suite    string `default:"${suite}" help:"Debian release that packages are taken from (default: ${suite}, the current stable one)."`
	Mirror   string `default:"${mirror}" placeholder:"URL" help:"Debian archive: http, https or file (default: ${mirror})."`
	Security string `name:"security-mirror" placeholder:"URL" help:"Archive of security updates, or none (default: --mirror with debian-security in place of debian)."`
	Keyring  string `default:"${keyring}" placeholder:"FILE" help:"OpenPGP keys that sign the archive's indexes (default: ${keyring})."`
	Locked   bool   `help:"Fail if a package is not available in the version of the lock file, instead of taking the newest one."`
	Offline  bool   `help:"Take packages from the cache only."`
}

func (f archiveFlags) options() debian.Options {
	return debian.Options{
		Suite: f.Suite, Mirror: f.Mirror, Security: f.Security, Keyring: f.Keyring, Locked: f.Locked,
		Offline: f.Offline,
	}
}

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
	o.Progress = func(format string, args ...any) { _, _ = fmt.Fprintf(os.Stderr, format+"\n", args...) }
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
	packages := []string{
		initramfs.AuthoritiesPackage + ":amd64",
		"linux-image-amd64:amd64", "linux-image-cloud-amd64:amd64", "linux-image-arm64:arm64",
		"linux-image-cloud-arm64:arm64", uki.Package + ":amd64", uki.Package + ":arm64",
	}
	for _, name := range firmware.Packages {
		packages = append(packages, name+":amd64")
	}
	for _, name := range slices.Concat(iso.Packages("amd64"), iso.Packages("arm64"), netbootPackages()) {
		if !slices.Contains(packages, name) {
			packages = append(packages, name)
		}
	}
	return packages
}
