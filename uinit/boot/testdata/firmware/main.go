// Command firmware is a ramdisk that switches its network cards on and logs what the kernel says about their firmware.
package main

import (
	"context"
	"errors"
	"os"
	"strings"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"ironroot/uinit/boot"
)

func main() {
	boot.Main(func(_ context.Context, m *boot.Machine) error {
		<-m.Settled
		links, err := netlink.LinkList()
		if err != nil {
			return err
		}
		for _, link := range links {
			if err := netlink.LinkSetUp(link); err != nil { // QEMU's card does not run the firmware that it gets
				m.Log.Info("link not set up", "link", link.Attrs().Name, "err", err)
			}
		}
		kmsg, err := unix.Open("/dev/kmsg", unix.O_RDONLY|unix.O_NONBLOCK, 0)
		if err != nil {
			return err
		}
		for record := make([]byte, 8<<10); ; {
			n, err := unix.Read(kmsg, record)
			if errors.Is(err, unix.EPIPE) {
				continue
			}
			if err != nil {
				break
			}
			if text := string(record[:n]); strings.Contains(text, "Loaded FW") {
				m.Log.Info("kernel", "message", text)
			}
		}
		if _, err := os.Stat("/lib/firmware"); err != nil {
			m.Log.Info("no firmware")
		}
		m.Log.Info("done with firmware")
		return nil
	})
}
