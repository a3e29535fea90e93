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
package bootloader
