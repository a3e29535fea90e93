package main

import (
	"context"
	"os"

	"ironroot/agent"
	"ironroot/release/bill"
	"ironroot/uki"
)

// ukiCmd builds and signs a unified kernel image.
type ukiCmd struct {
	Kernel      string   `short:"k" required:"" placeholder:"FILE" help:"Kernel for x86-64 or arm64 with an EFI stub."`
	Initrd      []string `short:"i" required:"" sep:"none" placeholder:"FILE" help:"Initramfs, plain or compressed. May be repeated; later archives replace files of earlier ones."`
	Out         string   `short:"o" required:"" placeholder:"FILE" help:"Image to write. The predicted PCR values are written to FILE.pcr.json."`
	Cmdline     string   `required:"" placeholder:"TEXT" help:"Kernel command line. Under Secure Boot, nothing can change it."`
	Key         string   `placeholder:"FILE" help:"RSA key that signs the image, PEM."`
	SignCommand string   `placeholder:"COMMAND" help:"Command for /bin/sh that signs instead of --key: it reads a SHA-256 digest of 32 bytes and writes an RSA signature (PKCS #1 v1.5)."`
	Cert        string   `placeholder:"FILE" help:"Certificate of the key, PEM or DER; certificates of its issuers can follow it."`
	Unsigned    bool     `help:"Do not sign the image."`
	OSRelease   string   `name:"os-release" placeholder:"FILE" help:"Description of the image in the form of os-release (default: ironroot and its version)."`
	Stub        string   `placeholder:"FILE" help:"Stub of systemd (default: that of Debian's package systemd-boot-efi)."`
	CacheDir    string   `placeholder:"DIR" help:"Directory for the stub's package (default: ironroot in the user's cache directory)."`
	archiveFlags
	signFlags
}

// Run builds the image and prints the size of each part.
func (c *ukiCmd) Run() error {
	return c.buildAndSign(func(ctx context.Context) (bill.Image, error) {
		report, err := uki.Build(ctx, uki.Options{
			Kernel: c.Kernel, Initrds: c.Initrd, Out: c.Out, Cmdline: c.Cmdline, OSRelease: c.OSRelease,
			Version: agent.Version, Stub: c.Stub, Key: c.Key, SignCommand: c.SignCommand, Cert: c.Cert,
			Unsigned: c.Unsigned, CacheDir: c.CacheDir, Debian: c.options(), Log: os.Stdout,
		})
		image := bill.Image{
			Path: report.Path, Purpose: "OPERATING-SYSTEM", Command: "uki", Debian: report.Debian,
			Parameters: map[string]any{"cmdline": c.Cmdline}, Parts: append([]string{c.Kernel}, c.Initrd...),
			Inputs: map[string]string{"stub": c.Stub, "osRelease": c.OSRelease, "certificate": c.Cert},
			Next:   []string{report.Path + uki.PredictionSuffix},
		}
		if c.Stub != "" {
			image.Added = map[string]string{"stub": c.Stub}
		}
		return image, err
	})
}
