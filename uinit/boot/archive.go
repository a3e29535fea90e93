//go:build linux

package boot

import (
	"fmt"
	"os"
	"strings"

	"golang.org/x/sys/unix"

	"ironroot/uinit/boot/layout"
)

// work is the memory, in bytes, that the agent needs to deploy an image, buffers included.
const work = 64 << 20

// need returns the memory, in bytes, that the kernel must leave free for an initramfs of that many unpacked bytes.
// The root file system can fill half of it. The other half contains the archive while it is unpacked.
func need(unpacked int64) int64 { return 2*unpacked + work }

// checkArchive checks that the last file of the archive exists. The kernel starts init even if it ran out of memory
// while it unpacked the archive, and missing files would cause errors much later.
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
		"Out of memory for the initramfs: it needs %s, the kernel has %d MiB here.\n%s\n", rule, wants,
		memory>>20, rule)
}
