// Package bootloader makes a deployed disk bootable: it finds loaders on the EFI system partition and writes UEFI boot
// entries through efivarfs (UEFI 2.10, sections 3.1.3, 3.3 and 10.3). It also removes boot entries.
//
// It reads the ESP with this module's FAT reader. This needs neither a kernel module nor a mount, and the kernel does
// not parse a file system of a whole-disk image. A partition image has its loaders on its root file system. They are
// copied to the ESP, for which the kernel mounts both, see [mounted]. Only InstallGRUB and KeepEFI run programs of the
// disk, in the subpackage chroot.
//
// # Loaders of partition images are copied without running anything
//
// ironic-python-agent enters the image's root, runs its grub to write a configuration, and then copies /boot/efi/EFI to
// the ESP. Without enable_bios_bootloader_install a partition image therefore cannot boot by UEFI at all. Copying does
// not require that a program of the image runs: the image's configuration names its root by a UUID, which is the same
// on the disk. So the files are always copied, before boot entries are searched. A second call copies them again and
// does not depend on an interrupted first one. If the operator allows it, the image's GRUB writes a new menu before.
//
// The kernel mounts both file systems, because code of our own to write ext4, XFS and Btrfs would duplicate its
// drivers. The mounts are not attached to the directory tree. They end with their file descriptors, so that none
// remains after an error or a cancelled command, and links of the image cannot lead out of the image. Of Btrfs the
// default subvolume is used, because only the image's boot loader knows if another one is the root.
//
// # A missing boot entry is never silent
//
// If the kernel has no efivarfs, or the firmware no variables at run time, install_bootloader fails, as in
// ironic-python-agent. The error names the loader in \EFI\BOOT that the firmware may start without an entry. The
// operator can set ignore_bootloader_failure. clean_uefi_nvram fails too: the empty directory of sysfs is not taken for
// firmware without entries.
//
// A kernel for x86 without support for UEFI does not know that the machine was booted by it. ironic-python-agent then
// takes the machine for one with BIOS: a whole-disk image needs no boot loader, and no entry is written. Here the
// signature that the boot loader leaves in the kernel's boot parameters is read. The log has a warning then, and the
// command fails if the image has no loader in \EFI\BOOT, unless the instance boots by BIOS.
//
// An image can have its only loader where neither ironic-python-agent nor the firmware looks for it, for example in
// \EFI\Microsoft\Boot. The deployment then succeeds, and the machine does not boot. So more names and all EFI system
// partitions are searched (docs/images.md), but only after the search of ironic-python-agent: an image that gets
// entries there gets the same ones here. One entry is written for such a loader, not one for each, because the others
// on the partition are started by it (GRUB by shim) or are older. If there is none, a whole-disk image fails.
// ironic-python-agent only logs a warning.
//
// # Boot entries are cleaned by UEFI only
//
// A machine that is booted by BIOS can have UEFI firmware with boot entries, which its kernel cannot access. So
// clean_uefi_nvram fails there, as in ironic-python-agent. The patterns are matched against the device path only, not
// against the data that an entry passes to its loader. Their syntax is Go's RE2: patterns with look-around or
// back-references are rejected before anything is removed.
//
// # Disks of an array
//
// The disks of a Linux RAID array are made bootable for firmware that cannot read the array. Each disk gets a partition
// of its own for that, beside the array's member:
//
//   - for UEFI a member of a mirror with the EFI system partition. Its superblock is at the end (version 1.0), so that
//     the firmware reads each member alone as a FAT file system.
//   - for BIOS, on a disk with a GPT, a BIOS boot partition, in which GRUB keeps its core image.
//
// Names, sizes and types are the same as in ironic-python-agent, so that each can use the partitions of the other.
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
package bootloader
