//go:build linux

package boot_test

import (
	"strings"
	"testing"

	"ironroot/initramfs"
	"ironroot/lab/qemu"
)

// TestFirmware boots a machine with a network card whose driver requests firmware: the kernel loads it out of the
// image, compressed as it is there; without it, one message names file and driver.
//
// Parity: R13 (firmware)
func TestFirmware(t *testing.T) {
	const loaded, missing = "Loaded FW: e100/d102e_ucode.bin", `firmware missing.*e100/d102e_ucode\.bin \(e100\)`
	for _, without := range []bool{false, true} {
		report := ramdisk(t, initramfs.Options{
			Init: programs + "firmware", ModuleGroups: []string{"network"}, NoFirmware: without,
		})
		m := start(t, report, `dyndbg="file drivers/base/firmware_loader/main.c +p"`, func(c *qemu.Config) {
			c.Extra = append(c.Extra, "-device", "i82551")
		})
		if without {
			expect(t, m, missing)
		}
		expect(t, m, "done with firmware")
		if got := strings.Contains(m.Console().String(), loaded); got == without {
			t.Errorf("without firmware: %t, the kernel loaded it: %t; the console ends with\n%s",
				without, got, m.Console().Tail(40))
		}
		if !without && strings.Contains(m.Console().String(), "firmware missing") {
			t.Errorf("firmware is reported missing; the console ends with\n%s", m.Console().Tail(40))
		}
		_ = m.Stop()
	}
}
