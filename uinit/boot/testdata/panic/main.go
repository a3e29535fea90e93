// Command panic is a ramdisk whose work panics: with the kernel parameter test.foreign=1 in a goroutine of its own,
// which nobody guards; with test.stuck=1 after it filled the serial port ttyS0 and made that stand still.
package main

import (
	"context"
	"os"

	"golang.org/x/sys/unix"

	"ironroot/uinit/boot"
)

func main() {
	boot.Main(func(ctx context.Context, m *boot.Machine) error {
		if m.Params["test.stuck"] == "1" {
			if err := stick(m); err != nil {
				return err
			}
		}
		if m.Params["test.foreign"] == "1" {
			go explode()
			<-ctx.Done()
		}
		explode()
		return nil
	})
}

// stick stops the port's output as the key Ctrl-S does, and writes more than fits into its buffers.
func stick(m *boot.Machine) error {
	f, err := os.OpenFile("/dev/ttyS0", os.O_WRONLY, 0)
	if err != nil {
		return err
	}
	const off = 0 // TCOOFF
	if err := unix.IoctlSetInt(int(f.Fd()), unix.TCXONC, off); err != nil {
		return err
	}
	for range 1000 {
		m.Log.Info("a line of some length, of which many are written to a console that stands still")
	}
	return nil
}

func explode() { panic("the work exploded") }
