package main

import (
	"context"
	"os"
	"os/signal"
	"syscall"

	"ironroot/iso"
)

// isoCmd packs a kernel and an initramfs into a bootable image.
type isoCmd struct {
	Kernel   string `short:"k" required:"" placeholder:"FILE" help:"Kernel, a bzImage for x86-64."`
	Initrd   string `short:"i" required:"" placeholder:"FILE" help:"Initramfs, plain or compressed."`
	Out      string `short:"o" required:"" placeholder:"FILE" help:"Image to write."`
	Cmdline  string `placeholder:"TEXT" help:"Kernel command line (default: boot_method=vmedia console=tty0 console=ttyS0,115200n8)."`
	Label    string `placeholder:"TEXT" help:"Volume label (default: INSTALL_IMAGE)."`
	CacheDir string `placeholder:"DIR" help:"Directory for the boot loaders' packages (default: ironroot in the user's cache directory)."`
	archiveFlags
	signFlags
}

// Run builds the image and prints the size of each part.
func (c *isoCmd) Run() error {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	sign, err := c.signer()
	if err != nil {
		return err
	}
	source, err := findSource(ctx)
	if err != nil {
		return err
	}
	report, err := iso.Build(ctx, iso.Options{
		Kernel: c.Kernel, Initrd: c.Initrd, Out: c.Out, Cmdline: c.Cmdline, Label: c.Label, CacheDir: c.CacheDir,
		Debian: c.options(), Bill: billOf(source), Log: os.Stdout,
	})
	if err != nil {
		return err
	}
	return sign(report.Path)
}
