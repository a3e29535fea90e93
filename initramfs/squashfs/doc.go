// Package squashfs writes file systems in the format SquashFS 4.0, compressed with Zstandard. The same entries give
// the same bytes on every machine.
//
// The format is described by the kernel's fs/squashfs/squashfs_fs.h. Images have no export table, no extended
// attributes and no sparse blocks, and all files belong to root.
//
// # Other writers were rejected
//
// The writer of go-diskfs needs root to copy the files into a directory of its own, failed on Debian's device nodes,
// and writes the current time; mksquashfs would be a program that the builder needs, and its bytes depend on its
// version. The kernel and unsquashfs read the images of this writer in its tests. Modification times of files are kept,
// because Python compares them with the times in its compiled files.
package squashfs
