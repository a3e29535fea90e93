// Package layout names the files of the ramdisk that both its builder and PID 1 use.
package layout

import (
	"fmt"
	"strconv"
	"strings"
)

// Paths in the archive, without the leading "/".
const (
	AboutFile  = "etc/ironroot/image"    // description of the image, near the start of the archive
	MarkerFile = "etc/ironroot/complete" // the last file of the archive
	// SignedCmdline contains the kernel command line of the unified kernel image that the archive is part of.
	SignedCmdline = "etc/ironroot/signed-cmdline"
	// KeysFile contains the public keys of operators who may log in as root.
	KeysFile = "root/.ssh/authorized_keys"
	// RescueFile is the userland of a rescue, as a SquashFS image.
	RescueFile = "usr/lib/ironroot/rescue.squashfs"
	// ShellFile is u-root's shell with all commands. In the archive it is a script, whose interpreter is ShellUnpacker.
	ShellFile = "bbin/bb"
	// ShellUnpacker is a link to /init. Started under this name, /init unpacks ShellDelta over ShellFile.
	ShellUnpacker = "bbin/unpack-bb"
	// ShellDelta is the program of the shell, stored as its difference from /init.
	ShellDelta = "bbin/bb.delta"
)

// About is the description that an image contains of itself.
type About struct {
	Name string
	// Unpacked is the memory, in bytes, that all files of the archive occupy, unpacked. It does not include firmware
	// that package kmod restores from deltas: PID 1 does that later, when the memory of the archive is free again and
	// the root file system can fill half of the memory.
	Unpacked int64
	Kernel   string // release of the kernel to which the modules belong, "" = no modules
}

// String returns the text of AboutFile.
func (a About) String() string {
	return fmt.Sprintf("name=%s\nunpacked=%d\nkernel=%s\n", a.Name, a.Unpacked, a.Kernel)
}

// ParseAbout parses the text of AboutFile. Missing and invalid values are zero.
func ParseAbout(text string) About {
	var a About
	for line := range strings.Lines(text) {
		key, value, _ := strings.Cut(strings.TrimSpace(line), "=")
		switch key {
		case "name":
			a.Name = value
		case "unpacked":
			a.Unpacked, _ = strconv.ParseInt(value, 10, 64)
		case "kernel":
			a.Kernel = value
		}
	}
	return a
}
