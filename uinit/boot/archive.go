//go:build linux

package boot

import (
	"fmt"
	"os"
	"strings"

	"golang.org/x/sys/unix"

	"ironroot/uinit/boot/layout"
)

// agentMemory is the memory, in bytes, that the agent needs to deploy an image, buffers included.
const agentMemory = 64 << 20

// minMemory returns the memory, in bytes, that the kernel must leave free for an initramfs of that many unpacked bytes.
// The root file system can fill half of it. The other half contains the archive while it is unpacked.
func minMemory(unpacked int64) int64 { return 2*unpacked + agentMemory }

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
	_, _ = fmt.Fprint(b.console, incompleteText(layout.ParseAbout(string(text)), totalMemory(&info)))
	b.die("ramdisk incomplete")
}

// incompleteText tells people on the consoles why the machine does not start.
func incompleteText(about layout.About, memory int64) string {
	rule := strings.Repeat("=", 72)
	needed := "more memory"
	if about.Unpacked > 0 {
		needed = fmt.Sprintf("at least %d MiB", minMemory(about.Unpacked)>>20)
	}
	return fmt.Sprintf("\n%s\nTHE RAMDISK IS INCOMPLETE: the kernel could not unpack it to its end.\n"+
		"Out of memory for the initramfs: it needs %s, the kernel has %d MiB here.\n%s\n", rule, needed,
		memory>>20, rule)
}
