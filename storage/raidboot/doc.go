// Package raidboot makes the disks of a Linux RAID array bootable for firmware that cannot read the array. Each disk
// gets a partition of its own for that, beside the array's member:
//
//   - for UEFI a member of a mirror with the EFI system partition. Its superblock is at the end (version 1.0), so that
//     the firmware reads each member alone as a FAT file system.
//   - for BIOS, on a disk with a GPT, a BIOS boot partition, in which GRUB keeps its core image.
//
// Names, sizes and types are those of ironic-python-agent, so that each can use the partitions of the other.
//
// # Boot loaders are on each disk
//
// Firmware cannot read the arrays of raid_config, so that a boot entry into one would have no effect. As in
// ironic-python-agent, install_bootloader puts the boot partitions on each disk; for BIOS the image's own GRUB. Each
// disk alone boots the system. Arrays in the firmware's own format, and mirrors of whole disks with their superblock at
// the end, are disks for the firmware and are treated as disks.
//
// The files of the image's EFI system partition are copied into a new FAT file system with its serial number and label,
// so that the image's fstab mounts the mirror. Neither file system is mounted by the kernel. The mirror is stopped, and
// its file system is compared with the image's on each member, by the reader that also finds the loaders: the firmware
// reads the members, not the mirror. Only then the source in the array is zeroed. Two file systems with one serial
// number would let the system mount either. Then the boot entries are written, one for each member and loader. Once the
// mirror is complete, a second call only writes the entries. If the agent has restarted meanwhile, it cannot know that
// the source was moved, and the call fails until the image is written again.
//
// A mirror that exists is used again, with the content of the new image. If it is not complete, because a disk was
// replaced, it is created again on all disks: a stale member is never added. It is named any:esp, as package md names
// others. It is not an array of raid_config, so that cleaning erases it with its disks, even if an entry without a name
// has its level.
//
// The initial resync need not end before the machine restarts: every block of the new file system was written to all
// members. For BIOS, a partition that GRUB can use is not added twice. If the image has dracut, the kernel parameter
// rd.md.uuid of the root array is appended to the settings of its GRUB, because dracut can be configured to assemble no
// other arrays. ironic-python-agent edits the line of the variable.
package raidboot
