//go:build linux

package boot

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"

	"ironroot/internal/newfile"
	"ironroot/uinit/boot/layout"
	"ironroot/uinit/kmod"
)

// shellChild replaces this process by a command of u-root's shell, if it was started as the interpreter of the shell's
// script.
func shellChild() {
	if filepath.Base(os.Args[0]) != filepath.Base(layout.ShellUnpacker) {
		return
	}
	err := errors.New("want the path of a command")
	if len(os.Args) > 1 {
		err = becomeCommand(os.Args[1:])
	}
	_, _ = fmt.Fprintln(os.Stderr, "unpack shell:", err)
	os.Exit(1)
}

// becomeCommand unpacks the shell and executes it, from memory if the root file system cannot be written to: it is
// read-only for hardware managers. It returns only after an error.
func becomeCommand(argv []string) error {
	program, err := unpackShell("/init", "/"+layout.ShellDelta)
	if err != nil {
		return err
	}
	file := "/" + layout.ShellFile
	if err := newfile.WriteMode(file, program, 0o755); err != nil { // other processes can do so at the same time
		fd, err := unix.MemfdCreate("shell", unix.MFD_CLOEXEC)
		if err != nil {
			return os.NewSyscallError("memfd_create", err)
		}
		file = fmt.Sprintf("/proc/self/fd/%d", fd)
		f := os.NewFile(uintptr(fd), file)
		defer f.Close() //nolint:errcheck // it exists until the program is executed
		if _, err := f.Write(program); err != nil {
			return err
		}
	}
	return fmt.Errorf("execute %s: %w", file, unix.Exec(file, argv, os.Environ()))
}

// unpackShell returns the shell. The base is mapped, because it is large and in memory already.
func unpackShell(base, delta string) ([]byte, error) {
	f, err := os.Open(base)
	if err != nil {
		return nil, err
	}
	defer f.Close() //nolint:errcheck // only read
	info, err := f.Stat()
	if err != nil {
		return nil, err
	}
	content, err := unix.Mmap(int(f.Fd()), 0, int(info.Size()), unix.PROT_READ, unix.MAP_PRIVATE)
	if err != nil {
		return nil, fmt.Errorf("map %s: %w", base, err)
	}
	defer unix.Munmap(content) //nolint:errcheck // the process ends soon
	packed, err := os.ReadFile(delta)
	if err != nil {
		return nil, err
	}
	return kmod.UnpackDelta(content, packed)
}
