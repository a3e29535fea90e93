package vmedia

import (
	"errors"
	"fmt"
	"io/fs"

	"golang.org/x/sys/unix"
)

// maxMounts bounds how many mounts on top of each other are taken away.
const maxMounts = 64

// Unmount takes away whatever is mounted on a folder: images of ironic-python-agent's kind mount the config drive on
// /mnt/config, where it would stay open to whoever reads the file system later and keep the BMC from ejecting the
// medium. A folder that is missing or no mount point is no error.
func Unmount(folder string) error {
	for range maxMounts {
		err := unix.Unmount(folder, unix.MNT_DETACH|unix.UMOUNT_NOFOLLOW)
		if errors.Is(err, unix.EINVAL) || errors.Is(err, fs.ErrNotExist) {
			return nil
		}
		if err != nil {
			return fmt.Errorf("unmount %s: %w", folder, err)
		}
	}
	return fmt.Errorf("unmount %s: got more than %d mounts", folder, maxMounts)
}
