package main

import (
	"context"
	"os"
	"os/signal"
	"syscall"
	"time"

	"ironroot/lab/demo"
	"ironroot/lab/qemu"
)

// demoCmd demonstrates a node from inspection to the running instance.
type demoCmd struct {
	Arch      string        `default:"amd64" enum:"amd64,arm64" placeholder:"ARCH" help:"Architecture of the node: ${enum}."`
	Boot      string        `default:"" enum:",network,iso" placeholder:"WAY" help:"How the node boots the ramdisk: network or iso (default: network, on arm64 iso)."`
	Out       string        `short:"o" default:"build" help:"Directory of what is built; logs go to demo/ below it."`
	Kernel    string        `type:"existingfile" placeholder:"FILE" help:"Boot this kernel instead of building one."`
	Initramfs string        `type:"existingfile" placeholder:"FILE" help:"Boot this initramfs instead of building one."`
	Memory    int64         `default:"512" placeholder:"MIB" help:"Memory of the node in MiB."`
	Firmware  string        `default:"uefi" enum:"uefi,uefi-secure,bios" help:"Firmware of the node: ${enum}."`
	Append    string        `placeholder:"TEXT" help:"Further kernel parameters for the ramdisk."`
	QCOW2     bool          `name:"qcow2" help:"Deploy the image as qcow2 instead of raw."`
	Limit     time.Duration `default:"0s" placeholder:"TIME" help:"How long the node may take from power-on to the running instance (default: 15m, on arm64 45m)."`
}

// Run runs the demonstration.
func (c *demoCmd) Run() error {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	_, err := demo.Run(ctx, demo.Options{
		Arch: c.Arch, Boot: c.Boot, Out: c.Out, Kernel: c.Kernel, Initramfs: c.Initramfs, Memory: c.Memory << 20,
		Firmware: qemu.Firmware(c.Firmware), Append: c.Append, QCOW2: c.QCOW2, Limit: c.Limit, Progress: os.Stdout,
	})
	if err != nil {
		return failed{err}
	}
	return nil
}
