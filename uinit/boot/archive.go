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

// minMemory returns the memory, in bytes, that the kernel must have for an initramfs of that many unpacked bytes: for
// its files, for the archive while it is unpacked, and for the agent.
func minMemory(unpacked int64) int64 { return 2*unpacked + agentMemory }

// checkArchive checks that the last file of the archive exists. The kernel starts init even if it ran out of memory
// while it unpacked the archive, and missing files would cause errors much later.
func (b *boot) checkArchive() {
	var root unix.Statfs_t
	if err := unix.Statfs("/", &root); err != nil {
		b.log.Warn("size of the root file system unknown", "err", err)
	}
	capacity := int64(root.Blocks) * root.Bsize // 0 for ramfs, which has no limit
	var info unix.Sysinfo_t
	_ = unix.Sysinfo(&info)
	memory := totalMemory(&info)
	if _, err := os.Stat("/" + layout.MarkerFile); err == nil {
		b.growRoot("/", capacity, memory)
		return
	}
	text, err := os.ReadFile("/" + layout.AboutFile)
	if err != nil {
		b.log.Warn("image", "err", err)
	}
	_, _ = fmt.Fprint(b.console, incompleteText(layout.ParseAbout(string(text)), capacity, memory))
	b.die("ramdisk incomplete")
}

// growRoot lets the root file system fill half of the memory that the kernel has now, unless it can already fill that
// or has no limit. Its first limit is half of the memory that was free when the kernel started. The archive and the
// firmware occupied the rest at that time.
func (b *boot) growRoot(root string, capacity, memory int64) {
	if capacity == 0 || capacity >= memory/2 {
		return
	}
	if err := unix.Mount("", root, "", unix.MS_REMOUNT, "size=50%"); err != nil {
		b.log.Warn("root file system not enlarged", "err", err)
	}
}

// incompleteText tells people on the consoles why the machine does not start. capacity is the size of the root file
// system, 0 without a limit, and memory the memory of the kernel, both in bytes.
func incompleteText(about layout.About, capacity, memory int64) string {
	rule := strings.Repeat("=", 72)
	mib := func(bytes int64) int64 { return (bytes + 1<<20 - 1) >> 20 }
	unpacked := about.Unpacked
	reason := "Out of memory for the initramfs: it needs more memory."
	switch {
	case unpacked <= 0:
	case 0 < capacity && capacity < unpacked:
		reason = fmt.Sprintf(
			"It needs at least %d MiB of memory that is free when the kernel starts; %d MiB were free.\n"+
				"The root file system can fill half of it: %d MiB, and the files have %d MiB.\n"+
				"Add at least %d MiB of memory, or start the kernel with rootfstype=ramfs, which has no limit.",
			mib(2*unpacked), 2*capacity>>20, capacity>>20, mib(unpacked), mib(2*unpacked)-2*capacity>>20)
	case memory < minMemory(unpacked):
		reason = fmt.Sprintf("Out of memory for the initramfs: it needs at least %d MiB, the kernel has %d MiB here.",
			mib(minMemory(unpacked)), memory>>20)
	default:
		reason = fmt.Sprintf("The file of the initramfs is damaged or was not loaded to its end. Memory suffices:\n"+
			"it needs at least %d MiB, the kernel has %d MiB here.", mib(minMemory(unpacked)), memory>>20)
	}
	return fmt.Sprintf("\n%s\nTHE RAMDISK IS INCOMPLETE: the kernel could not unpack it to its end.\n%s\n%s\n",
		rule, reason, rule)
}
