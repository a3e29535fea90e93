// Command sysrq is a ramdisk that stops the machine without being allowed to call reboot(2).
package main

import (
	"context"
	"fmt"
	"runtime"

	"golang.org/x/sys/unix"

	"ironroot/agent/power"
	"ironroot/uinit/boot"
)

func main() {
	boot.Main(func(ctx context.Context, m *boot.Machine) error {
		runtime.LockOSThread() // capabilities are a thread's
		if err := dropSysBoot(); err != nil {
			return err
		}
		stop := power.Machine{Log: m.Log, Console: m}.Reboot
		if m.Params["test.stop"] == "off" {
			stop = power.Machine{Log: m.Log, Console: m}.PowerOff
		}
		return stop(ctx)
	})
}

// dropSysBoot drops the capability that reboot(2) requires.
func dropSysBoot() error {
	header := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
	var data [2]unix.CapUserData
	if err := unix.Capget(&header, &data[0]); err != nil {
		return fmt.Errorf("capget: %w", err)
	}
	data[0].Effective &^= 1 << unix.CAP_SYS_BOOT
	if err := unix.Capset(&header, &data[0]); err != nil {
		return fmt.Errorf("capset: %w", err)
	}
	return nil
}
