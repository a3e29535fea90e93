package vmedia

import (
	"errors"
	"fmt"
	"io/fs"

	"golang.org/x/sys/unix"
)

// maxMounts limits the number of stacked mounts that are removed.
const maxMounts = 64

// Unmount unmounts everything on a directory. Images of ironic-python-agent mount the config drive on /mnt/config,
// where it would stay readable and prevent the BMC from ejecting the medium. A directory that is missing or not a
// mount point is not an error.
func Unmount(directory string) error {
	for range maxMounts {
		err := unix.Unmount(directory, unix.MNT_DETACH|unix.UMOUNT_NOFOLLOW)
		if errors.Is(err, unix.EINVAL) || errors.Is(err, fs.ErrNotExist) {
			return nil
		}
		if err != nil {
			return fmt.Errorf("unmount %s: %w", directory, err)
		}
	}
	return fmt.Errorf("unmount %s: got more than %d mounts", directory, maxMounts)
}
