package demo

import (
	"context"
	"errors"
	"fmt"
	"net"
	"path/filepath"

	"ironroot/iso"
	"ironroot/lab/conductor"
	"ironroot/lab/imageserver"
	"ironroot/lab/qemu"
	"ironroot/netboot/server"
)

const agentPort = 9999

// serve starts the image server and the conductor, and adds the node.
func (d *demo) serve(_ context.Context) error {
	var err error
	if d.images, err = imageserver.New(imageserver.Options{Observer: d}); err != nil {
		return err
	}
	d.images.File("kernel", d.options.Kernel)
	d.images.File("initramfs", d.options.Initramfs)
	d.images.File("debian"+filepath.Ext(d.osFile), d.osFile)
	spec := conductor.NodeSpec{Name: "demo", MACs: []string{nodeMAC}}
	if d.options.Firmware == qemu.BIOS {
		spec.BootMode = "bios"
	}
	if d.options.Boot == ISO {
		spec.Token = conductor.NewToken() // with virtual media, the token is on the kernel's command line
	}
	d.conductor, err = conductor.New(conductor.Options{
		TLS: true, Names: []string{host}, FastTrack: true, Events: d, Dialer: d,
	})
	if err != nil {
		return errors.Join(err, d.images.Close())
	}
	d.node = d.conductor.AddNode(spec)
	d.node.SetState(conductor.InspectWait)
	d.report.Node, d.report.Drive = d.node.UUID(), conductor.NewUUID()
	return d.describe()
}

// DialContext connects to the agent, whose address is on QEMU's own network, through a forwarded port.
func (d *demo) DialContext(ctx context.Context, network, _ string) (net.Conn, error) {
	return d.machine.DialForwarded(ctx, network, agentPort)
}

// describe sets the machine's configuration.
func (d *demo) describe() error {
	d.config = qemu.Config{
		Name: "node", Dir: d.report.Dir, Arch: d.options.Arch, Memory: d.options.Memory, CPUs: 2,
		Firmware: d.options.Firmware,
		Disks: []qemu.Disk{
			{File: filepath.Join(d.report.Dir, "disk.raw"), Size: 8 << 30, Serial: "DEMO0001", Boot: 2},
		},
		OnPowerOff: qemu.Pause, Lines: d,
		SMBIOS: []string{"type=1,manufacturer=ironroot,product=demonstration,serial=DEMO0001"},
	}
	nic := qemu.NIC{MAC: nodeMAC, Forwards: []qemu.Forward{{Guest: agentPort}}}
	if d.options.Boot == Network {
		nic.Boot, nic.BootFile = 1, d.images.URLFrom(host, "boot.ipxe")
		script, err := server.Script{
			Kernel: d.images.URLFrom(host, "kernel"), Initrds: []string{d.images.URLFrom(host, "initramfs")},
			Cmdline: d.cmdline(),
		}.Render()
		if err != nil {
			return err
		}
		d.images.Bytes("boot.ipxe", script)
	}
	d.config.NICs = []qemu.NIC{nic}
	return nil
}

// cmdline returns the kernel command line that Ironic would set for the ramdisk.
func (d *demo) cmdline() string {
	api, serial := d.conductor.URLFrom(host), "ttyS0"
	if d.options.Arch == "arm64" {
		serial = "ttyAMA0"
	}
	line := "ipa-api-url=" + api + " ipa-insecure=1 ipa-inspection-callback-url=" + api + "/v1/continue_inspection" +
		" ipa-inspection-collectors=default,logs,pci-devices console=" + serial + ",115200n8 loglevel=4 " +
		qemu.KernelHints
	if d.options.Boot == ISO {
		line += " boot_method=vmedia ipa-agent-token=" + d.node.Token()
	} else {
		line += " BOOTIF=" + nodeMAC
	}
	if d.options.Append != "" {
		line += " " + d.options.Append
	}
	return line
}

// powerOn starts the node's machine.
func (d *demo) powerOn(ctx context.Context) error {
	if d.options.Boot == ISO {
		image := filepath.Join(d.report.Dir, "boot.iso")
		d.progress.say("building the ISO")
		if _, err := iso.Build(ctx, iso.Options{
			Kernel: d.options.Kernel, Initrd: d.options.Initramfs, Out: image, Cmdline: d.cmdline(), Log: d.progress,
		}); err != nil {
			return fmt.Errorf("build the ISO: %w", err)
		}
		if err := d.artefact(image); err != nil {
			return err
		}
		d.config.CDROM, d.config.CDBoot = image, 1
	}
	machine, err := qemu.Start(ctx, d.config)
	if err != nil {
		return err
	}
	d.machine = machine
	d.start()
	d.moment(fmt.Sprintf("power on: %s, %d MiB of memory, boot by %s (console: %s)",
		d.config.Firmware, d.config.Memory>>20, d.options.Boot, filepath.Join(d.report.Dir, "console.log")))
	go func() {
		if err := machine.Wait(ctx); err != nil {
			d.cancel(err)
		} else {
			d.cancel(errors.New("the node's machine has ended"))
		}
	}()
	return nil
}

// bootFromDisk switches the machine on again with its disk as the first boot device.
func (d *demo) bootFromDisk(ctx context.Context) error {
	device := "nic0"
	if d.options.Boot == ISO {
		device = "cdrom"
	}
	if err := d.machine.SetBoot(ctx, device, 3); err != nil {
		return err
	}
	return d.machine.PowerOn(ctx)
}

// Served reports a download.
func (d *demo) Served(name string, sent int64) {
	d.moment(fmt.Sprintf("downloaded by the node: %s, %.1f MiB", name, float64(sent)/(1<<20)))
}

// Event reports an event of the conductor.
func (d *demo) Event(n *conductor.Node, e conductor.Event) {
	if e.Name == conductor.EventFirstHeartbeat {
		token := n.Token()
		d.progress.locked(func() { d.report.Token = token })
	}
	text := e.Name
	if e.Text != "" {
		text += ": " + e.Text
	}
	switch e.Name {
	case conductor.EventCommand, conductor.EventHeartbeat:
		d.progress.say("%s", text)
	default:
		d.moment(text)
	}
}

func (d *demo) close() {
	if d.machine != nil {
		_ = d.machine.Stop() // the machine is gone in any case
	}
	_ = errors.Join(d.conductor.Close(), d.images.Close()) // the listeners of a finished run
}
