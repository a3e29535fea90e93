package nvidia

import (
	"os"

	"golang.org/x/sys/unix"
)

// memoryFile returns a new file in memory, which has no name.
func memoryFile() (*os.File, error) {
	fd, err := unix.MemfdCreate("firmware", unix.MFD_CLOEXEC|unix.MFD_ALLOW_SEALING)
	if err != nil {
		return nil, os.NewSyscallError("memfd_create", err)
	}
	return os.NewFile(uintptr(fd), "firmware"), nil
}

// seal makes a file in memory unchangeable.
func seal(f *os.File) error {
	const seals = unix.F_SEAL_SEAL | unix.F_SEAL_SHRINK | unix.F_SEAL_GROW | unix.F_SEAL_WRITE
	_, err := unix.FcntlInt(f.Fd(), unix.F_ADD_SEALS, seals)
	return os.NewSyscallError("fcntl(F_ADD_SEALS)", err)
}
