// Package mkfs makes file systems and swap areas, as mke2fs, mkfs.xfs, mkfs.vfat and mkswap make them with the settings
// of Debian 12. They are empty, except for files on FAT. It writes little, even on large devices: it leaves to the
// kernel what a file system's driver can initialise later, and zeroes ranges by commands of the device if it has them.
//
// ext4 file systems have no blocks reserved for growth (resize_inode), which resize2fs does not require. XFS has a log
// of at most 512 MiB and no RAID stripe geometry. Swap areas have pages of 4096 bytes.
//
// # Why not a library
//
// go-diskfs makes ext4 file systems that pass e2fsck, but writes every inode table and the journal: 3.3 GiB and 15
// seconds for 100 GiB, and it does not support XFS. The main difficulty is to know which parts need not be written. The
// code here has 1600 lines with XFS, and writes 1 MiB in a tenth of a second for an ext4 of 100 GiB.
//
// Settings of ext4 are equal to Debian's mke2fs, key by key, except for the blocks that are reserved for growing and,
// below 512 MiB, the number of groups that are placed together. XFS is identical to the output of mkfs.xfs, except for
// times and spare superblocks, up to the size at which its log exceeds 512 MiB. The log of XFS must be zeroed. The
// journal of ext4 is not zeroed if the device would have to write the zeros: its sequence numbers begin at a random
// number instead, so that no old content continues it. ext2 and ext3 do not support inode tables that the kernel
// initialises later; theirs are zeroed, as by mke2fs, by the device if it can.
//
// A label that is too long is an error for every kind, while mke2fs and mkswap truncate it with a warning that nobody
// would read. Btrfs, exFAT, NTFS and others cannot be made; a request for one is an error that names the supported
// ones, before the disk is changed.
package mkfs
