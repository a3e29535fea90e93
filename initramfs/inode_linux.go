package initramfs

import (
	"io/fs"
	"syscall"
)

// inodeKey identifies an inode.
type inodeKey struct{ device, inode uint64 }

// sharedInode returns the inode of a file that has more than one name.
func sharedInode(info fs.FileInfo) (inodeKey, bool) {
	stat, ok := info.Sys().(*syscall.Stat_t)
	if !ok || stat.Nlink < 2 {
		return inodeKey{}, false
	}
	return inodeKey{stat.Dev, stat.Ino}, true
}
