// Package device writes an image to a block device, or to a file of fixed size, so that a failure never leaves a disk
// that boots.
//
// Wipe zeroes what firmware boots from: the first MiB and the end. Content of the end is kept in memory until
// ReleaseEnd; the caller keeps the first MiB. Aligned data bypasses the page cache.
//
// # The first MiB goes last
//
// If a download fails (a wrong checksum, a server that closes early, a power cut), the disk must not boot the part that
// has arrived. So the start and the end of the disk are zeroed first, and the image is written from its second MiB on
// while it arrives. The first MiB is written after length and checksum were verified, together with the disk's last MiB
// if the image is as long as the disk: the image's backup GPT is there. Hashing needs no second pass, and no image must
// fit into memory. The first sector of that MiB is written last. The disk is flushed before the MiB and before the
// sector: between two flushes a disk writes in any order, and a boot sector is useless without the code that it loads.
// A test replays the requests up to every one of them.
package device
