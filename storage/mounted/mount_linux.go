package mounted

import (
	"os"

	"golang.org/x/sys/unix"
)

// mount mounts a device and returns the descriptor of the root directory.
func mount(device, kind string, writable bool) (root int, err error) {
	context, err := unix.Fsopen(kind, unix.FSOPEN_CLOEXEC)
	if err != nil {
		return -1, err
	}
	defer unix.Close(context) //nolint:errcheck // the mount has its own reference
	attributes := unix.MOUNT_ATTR_NOSUID | unix.MOUNT_ATTR_NODEV | unix.MOUNT_ATTR_NOEXEC
	if err := unix.FsconfigSetString(context, "source", device); err != nil {
		return -1, err
	}
	if !writable {
		if err := unix.FsconfigSetFlag(context, "ro"); err != nil {
			return -1, err
		}
		attributes |= unix.MOUNT_ATTR_RDONLY
	}
	if err := unix.FsconfigCreate(context); err != nil {
		return -1, err
	}
	return unix.Fsmount(context, unix.FSMOUNT_CLOEXEC, attributes)
}

// openBelow opens a file whose name is resolved as inside a chroot to the directory root.
func openBelow(root int, name string, flag int, perm os.FileMode) (fd int, err error) {
	how := unix.OpenHow{
		Flags: uint64(flag) | unix.O_CLOEXEC | unix.O_NONBLOCK | unix.O_NOCTTY, Mode: uint64(perm.Perm()),
		Resolve: unix.RESOLVE_IN_ROOT | unix.RESOLVE_NO_MAGICLINKS,
	}
	if flag&os.O_CREATE == 0 {
		how.Mode = 0
	}
	return unix.Openat2(root, name, &how)
}

// syncFS writes all data of a file's file system.
func syncFS(f *os.File) error { return unix.Syncfs(int(f.Fd())) }
