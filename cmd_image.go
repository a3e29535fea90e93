package main

import (
	"context"
	"os"
	"os/signal"
	"strings"

	"ironroot/initramfs"
)

// imageCmd builds a kernel and an initramfs.
type imageCmd struct {
	Out      string   `short:"o" default:"build" help:"Directory of the results."`
	Name     string   `help:"Stem of the files' names; ipa-ironroot-ARCH when not given."`
	Arch     string   `default:"amd64" enum:"amd64,arm64" help:"Architecture of the image: ${enum}."`
	Kernel   string   `type:"existingfile" help:"A kernel of your own instead of the package's."`
	Modules  string   `type:"existingdir" help:"Directory with the modules of --kernel."`
	Config   string   `name:"kernel-config" type:"existingfile" help:"Configuration file of --kernel, which determines how firmware may be compressed."`
	Package  string   `help:"Debian package of the kernel; linux-image-ARCH when not given."`
	Groups   string   `name:"module-groups" default:"server" help:"Groups of modules to take in, joined by commas; none for none."`
	Shell    bool     `default:"true" negatable:"" help:"Take in u-root's shell, for people."`
	Firmware string   `type:"existingdir" help:"Directory with firmware that is preferred to that of Debian's packages."`
	NoFW     bool     `name:"no-firmware" help:"Leave out firmware."`
	Manager  []string `sep:"none" type:"existingdir" placeholder:"DIR" help:"Directory of a Go package with a hardware manager to compile in. May be repeated."`
	Root     []string `name:"manager-root" sep:"none" placeholder:"DIR" help:"Userland with managers that need a libc or an interpreter: a directory, an OCI image layout, a tarball of docker save, or oci://REFERENCE. May be repeated."`
	File     []string `sep:"none" placeholder:"HOST:GUEST" help:"Extra file or directory to add. May be repeated."`
	Cache    string   `help:"Directory for downloads and build results; ironroot in the user's cache directory when not given."`
	archiveFlags
}

// Run builds the image.
func (c *imageCmd) Run() error {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	_, err := initramfs.Build(ctx, initramfs.Options{
		Arch: c.Arch, Out: c.Out, Name: c.Name, Kernel: c.Kernel, Modules: c.Modules, Package: c.Package,
		ModuleGroups: strings.Split(c.Groups, ","), Shell: c.Shell, Firmware: c.Firmware,
		NoFirmware: c.NoFW, KernelConfig: c.Config, Debian: c.options(),
		Files: c.File, Managers: c.Manager, ManagerRoots: c.Root, CacheDir: c.Cache, Progress: os.Stderr,
	})
	return err
}
