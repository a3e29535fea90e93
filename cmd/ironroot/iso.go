package main

import (
	"context"
	"os"

	"ironroot/iso"
	"ironroot/release/bill"
)

// isoCmd packs a kernel and an initramfs, or a unified kernel image, into a bootable image.
type isoCmd struct {
	Kernel   string `short:"k" placeholder:"FILE" help:"Kernel: a bzImage for x86-64, or an image with an EFI stub for arm64."`
	Initrd   string `short:"i" placeholder:"FILE" help:"Initramfs, plain or compressed."`
	UKI      string `name:"uki" placeholder:"FILE" help:"Unified kernel image, instead of kernel, initramfs and command line. Only UEFI boots it."`
	Arch     string `enum:",amd64,arm64" default:"" placeholder:"ARCH" help:"Architecture, amd64 or arm64: a kernel or image of another one is an error (default: that of the kernel)."`
	Out      string `short:"o" required:"" placeholder:"FILE" help:"Image to write."`
	Cmdline  string `placeholder:"TEXT" help:"Kernel command line (default: boot_method=vmedia console=tty0 console=ttyS0,115200n8; on arm64 with ttyAMA0)."`
	Label    string `placeholder:"TEXT" help:"Volume label (default: INSTALL_IMAGE)."`
	CacheDir string `placeholder:"DIR" help:"Directory for the boot loaders' packages (default: ironroot in the user's cache directory)."`
	archiveFlags
	signFlags
}

// Run builds the image and prints the size of each part.
func (c *isoCmd) Run() error {
	return c.buildAndSign(func(ctx context.Context) (bill.Image, error) {
		report, err := iso.Build(ctx, iso.Options{
			Kernel: c.Kernel, Initrd: c.Initrd, UKI: c.UKI, Arch: c.Arch, Out: c.Out, Cmdline: c.Cmdline,
			Label: c.Label, CacheDir: c.CacheDir, Debian: c.options(), Log: os.Stdout,
		})
		image := bill.Image{
			Path: report.Path, Purpose: "INSTALL", Command: "iso", Debian: report.Debian, Parts: []string{c.UKI},
			Parameters: map[string]any{"label": report.Label},
		}
		if c.UKI == "" {
			image.Parts, image.Parameters["cmdline"] = []string{c.Kernel, c.Initrd}, report.Cmdline
		}
		return image, err
	})
}
