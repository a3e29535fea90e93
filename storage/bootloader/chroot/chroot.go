// Package chroot runs a program of an installed system inside that system. It is the only place where the ramdisk runs
// code of an image. It is for operators who allow an image to install its own boot loader
// (enable_bios_bootloader_install).
//
// The program sees its own root, the device nodes of the disk, a read-only sysfs and procfs, an empty /run and /tmp,
// only its own processes, and no open file of the ramdisk. /proc/cmdline contains only the root, because the ramdisk's
// command line contains the agent token and the root password. The kernel log and kernel memory are masked. The program
// has no network and no capability to mount, to create device nodes, to load modules or to read the kernel log, see
// [capabilities]. Only the system calls of a list are permitted, see [confine.ProgramPolicy], so that the program
// cannot undo the masks. Its mounts and processes are in namespaces of their own: the kernel removes them when the
// program ends for any reason. The program writes to the disk as root: this is not a sandbox.
package chroot

import (
	"errors"
	"fmt"
)

// System is an installed system.
type System struct {
	Root    string   // device of the root file system
	ESP     string   // device that is mounted at /boot/efi, "" for none
	Devices []string // additional device nodes that the program sees: disk and partitions
	Mounts  []Mount  // additional file systems that the program sees
}

// Mount is a file system of the given kind and its mount point in the system.
type Mount struct{ Device, Kind, At string }

// Error describes the failure of a program.
type Error struct {
	Program string
	Output  string // its last lines
	Err     error
}

func (e *Error) Error() string {
	return fmt.Sprintf("%s of the image: %v: %s", e.Program, e.Err, e.Output)
}

func (e *Error) Unwrap() error { return e.Err }

// ErrNoProgram is returned if the system has none of the programs.
var ErrNoProgram = errors.New("no such program")
