package iso

import (
	"fmt"

	"ironroot/internal/grubconfig"
)

// isolinuxConfig starts the kernel without a prompt. The serial port shows errors of the loader.
func isolinuxConfig(cmdline string) string {
	return fmt.Sprintf(`SERIAL 0 115200
DEFAULT boot
PROMPT 0
LABEL boot
  KERNEL /vmlinuz
  APPEND initrd=/initrd %s
`, cmdline)
}

// grubConfig does the same for GRUB.
func grubConfig(cmdline string) string { return grubconfig.Boot("/vmlinuz", "/initrd", cmdline) }
