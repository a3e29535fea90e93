package bmc

import (
	"context"
	"encoding/json"
	"fmt"

	"ironroot/lab/qemu"
)

// QEMU is a Machine that runs virtual machines of package qemu. They boot from the requested device first, then from
// the disks, then from network and media.
type QEMU struct {
	// Config describes the machine. Start sets the boot orders, the media and, with Direct, the kernel.
	Config qemu.Config
	Direct Direct // nil: the firmware boots from the network
}

// Direct has the files of a network boot without firmware.
type Direct interface {
	// Direct returns kernel, initramfs and command line. If ok is false, the firmware boots from the network.
	Direct() (kernel, initrd, cmdline string, ok bool)
}

// Boot orders: the requested device, the disks, all other devices.
const (
	bootFirst = 1
	bootDisk  = 10
	bootNIC   = 20
	bootMedia = 30
)

// Start starts a virtual machine.
func (q *QEMU) Start(_ context.Context, boot Boot) (Session, error) {
	c := q.Config
	c.Disks, c.NICs = append([]qemu.Disk(nil), c.Disks...), append([]qemu.NIC(nil), c.NICs...)
	order := func(target string, otherwise int) int {
		if boot.Target == target {
			return bootFirst
		}
		return otherwise
	}
	for i := range c.Disks {
		c.Disks[i].Boot = bootDisk + i
	}
	for i := range c.NICs {
		c.NICs[i].Boot = order("Pxe", bootNIC) + i
	}
	if c.CDROM = boot.CD; boot.CD != "" {
		c.CDBoot = order("Cd", bootMedia)
	}
	if boot.USB != "" {
		c.Disks = append(c.Disks,
			qemu.Disk{Bus: qemu.USB, File: boot.USB, ReadOnly: true, Boot: order("UsbCd", bootMedia+1)})
	}
	if boot.Target == "Pxe" && q.Direct != nil {
		if kernel, initrd, cmdline, ok := q.Direct.Direct(); ok {
			c.Kernel, c.Initrd, c.Append = kernel, initrd, cmdline
		}
	}
	c.HTTPBoot = boot.URL
	// Restarts must go through the BMC, because the boot device may have changed.
	c.OnReboot, c.OnPowerOff = qemu.Shutdown, qemu.Shutdown
	// The machine must outlive the request that starts it.
	m, err := qemu.Start(context.Background(), c)
	if err != nil {
		return nil, err
	}
	return session{m}, nil
}

// session is a running virtual machine.
type session struct{ machine *qemu.Machine }

func (s session) Wait() (restart bool) {
	for event := range s.machine.Events(context.Background()) {
		var data struct{ Reason string }
		if event.Name == "SHUTDOWN" && json.Unmarshal(event.Data, &data) == nil {
			restart = data.Reason == "guest-reset"
		}
	}
	// QEMU must have exited before the next machine opens its disks. Errors are in its log.
	_ = s.machine.Wait(context.Background())
	return restart
}

func (s session) Shutdown(ctx context.Context) error { return s.machine.PowerOff(ctx) }

func (s session) Stop() error {
	if err := s.machine.Stop(); err != nil {
		return fmt.Errorf("pull the plug: %w", err)
	}
	return nil
}
