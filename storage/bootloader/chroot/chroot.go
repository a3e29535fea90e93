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
