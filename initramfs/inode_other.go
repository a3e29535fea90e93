//go:build !linux

package initramfs

import "io/fs"

type inodeKey struct{}

// sharedInode reports that every name is a file of its own.
func sharedInode(fs.FileInfo) (inodeKey, bool) { return inodeKey{}, false }
