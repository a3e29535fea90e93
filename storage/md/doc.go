// Package md encodes and decodes the superblocks of Linux software RAID (md).
//
// It supports version 0.90 (struct mdp_superblock_s of Linux's md_p.h, in either byte order) and versions 1.0, 1.1 and
// 1.2 (struct mdp_superblock_1), and encodes superblocks of new arrays as mdadm does. Of external metadata (DDF,
// Intel's) it decodes whether they list the disk that they are on. It opens no files: package raid reads devices.
//
// # Metadata of firmware RAID
//
// The metadata count only if the checksums are valid and the disk is listed as an active member. Disks with old
// metadata are common, because images rarely overwrite the end of a disk. If each of them were refused, nodes that are
// deployed without cleaning would fail for no reason. The rules follow mdadm:
//
//   - IMSM names disks by the last 16 characters of their serial numbers. The entry must have the status CONFIGURED and
//     not FAILED, and there must be a volume. Metadata that were copied from another disk do not list this one.
//   - DDF records on each disk which of the listed ones it is, and the entry must be active, online or rebuilding, and
//     neither failed nor missing. There must be a virtual disk. The GUID of a disk is not compared with its serial
//     number: the specification allows several ways to form it, and mdadm uses random numbers. A copy of a whole disk
//     is therefore refused, too. If one of the two copies of the metadata is damaged, the other one counts.
//
// Metadata of other disks are not compared. A member that dropped out of an array while the others were in use still
// lists itself as active and is refused: its data can be the only ones left if the others were replaced.
//
// # New superblocks
//
// Every field is equal to mdadm 4.2 with the arguments of ironic-python-agent: offsets, sizes, the log of bad blocks,
// and above 100 GiB the write-intent bitmap. No member counts as in sync, so the kernel resyncs. The name of an array
// is any:NAME: mdadm then assembles it under this name on every host, while ironic-python-agent leaves the host name of
// its ramdisk there. A name of more than 27 characters is stored without "any:", as by mdadm, because the superblock
// has space for 31 bytes. On other hosts the device of such an array can get a number.
//
// There is one other difference: all arrays with redundancy and superblock 1.2 have a bitmap, as with
// --bitmap=internal, also below 100 GiB. Without one, the kernel accepts a member that was removed only as a new one
// once the array has changed: "mdadm --re-add" is refused, and a member whose cable was loose is rebuilt from end to
// end. A bitmap also limits the resync after a loss of power to the regions that were being written. The cost is in the
// instance: the first write to a region of 64 MiB waits for a write of the bitmap to each member, and its bit is
// cleared some seconds after the last write. "mdadm --grow --bitmap=none" removes the bitmap. A bitmap has at most 128
// KiB; otherwise the regions are doubled until it fits, as mdadm does (add_internal_bitmap1 in its super1.c). The field
// for the size of a region has 32 bits, so the largest regions have 2 GiB: enough for about 2 PiB. The bitmap needs no
// space of its own: mdadm reserves 4 KiB or more for one that is added later. The mirror of the EFI system partition
// has none, as with ironic-python-agent: it is small and seldom written.
package md
