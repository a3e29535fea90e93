package boot

import (
	"fmt"
	"os"
	"strings"

	"ironroot/uinit/boot/layout"

	"golang.org/x/sys/unix"
)

// work is the memory, in bytes, that the agent takes to deploy an image, buffers included.
const work = 64 << 20

// need is the memory, in bytes, that the kernel must leave for an image that unpacks to so many bytes. The root file
// system may fill half of it; the archive, which is in memory as well while it is unpacked, fits into the other half.
func need(unpacked int64) int64 { return 2*unpacked + work }

// checkArchive looks for the archive's last file. The kernel starts init even when it ran out of memory on the way
// there, and what is missing then would make trouble much later.
func (b *boot) checkArchive() {
	if _, err := os.Stat("/" + layout.MarkerFile); err == nil {
		return
	}
	text, err := os.ReadFile("/" + layout.AboutFile)
	if err != nil {
		b.log.Warn("image", "err", err)
	}
	var info unix.Sysinfo_t
	_ = unix.Sysinfo(&info)
	_, _ = fmt.Fprint(b.console, truncated(layout.ParseAbout(string(text)), memory(&info)))
	b.die("ramdisk incomplete")
}

func truncated(about layout.About, memory int64) string {
	rule := strings.Repeat("=", 72)
	wants := "more memory"
	if about.Unpacked > 0 {
		wants = fmt.Sprintf("at least %d MiB", need(about.Unpacked)>>20)
	}
	return fmt.Sprintf("\n%s\nTHE RAMDISK IS INCOMPLETE: the kernel could not unpack it to its end.\n"+
		"Out of memory for the initramfs: it needs %s, the kernel has %d MiB here.\n%s\n", rule, wants, memory>>20, rule)
}
