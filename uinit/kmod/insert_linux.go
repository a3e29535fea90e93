package kmod

import (
	"os"

	"golang.org/x/sys/unix"
)

// insertFile loads a module that the kernel reads and unpacks.
func (hostKernel) insertFile(path, params string) error {
	f, err := os.Open(path)
	if err != nil {
		return err
	}
	defer f.Close() //nolint:errcheck // only read
	return unix.FinitModule(int(f.Fd()), params, unix.MODULE_INIT_COMPRESSED_FILE)
}

// insert loads a module.
func (hostKernel) insert(image []byte, params string) error { return unix.InitModule(image, params) }
