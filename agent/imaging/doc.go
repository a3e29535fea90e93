// Package imaging deploys operating systems. It implements the commands prepare_image, cache_image, install_bootloader,
// execute_bootc_install and start_iscsi_target and the step write_image: it parses the protocol's image_info, selects
// the root disk, writes the image, and adds config drive and boot entry.
//
// For a partition image it creates the partition table and the file systems; with preserve_ephemeral the disk must
// already have that layout. A boot loader for legacy BIOS is installed only by programs of the image, if the
// configuration allows them to run.
//
// # Checks precede changes
//
// A new layout removes the old layout, file systems and boot loader of a disk. So all possible checks precede it:
// whether the layout fits, whether every file system can be made, the content of the config drive, and with one more
// request whether the image is too large for root_mb or has a rejected format. A deployment that cannot succeed does
// not change the old system. Ironic itself rejects an image that is not raw and larger than the node's memory_mb,
// because its own ramdisk stores the image in memory. With this ramdisk the property can be omitted.
//
// # Arrays must be bootable
//
// install_bootloader follows when the image is written, and an array without boot loaders on its disks does not boot.
// Before the image is written, the array must therefore be complete, consist of partitions of several disks, and have
// space for the partitions to boot from on each. For BIOS, enable_bios_bootloader_install must be set. Otherwise the
// deployment fails and nothing is written. The option ignore_bootloader_failure says that the operator boots the
// machine another way. A whole-disk image without a loader for UEFI, whose root Ironic does not name, installs no boot
// loader on the disks. On a single disk this is no error, because the image can boot another way. On an array it is
// one.
//
// # Disks of firmware RAID are written to only if a hint names them
//
// ironic-python-agent lets mdadm assemble all arrays at its start, arrays of firmware too, and then chooses the root
// disk by hints or by size among arrays and disks. A member of an array can be chosen and is written to. This ramdisk
// has no mdadm and no driver for such arrays, so it sees only their members. An image on one of them destroys an array
// that an operator has set up in the firmware, and the firmware can copy old data over the image when it repairs a
// mirror. Such a disk is refused if its own metadata prove that it is in use (package md). The operator can choose the
// disk nevertheless, by a hint that names it and no other disk. A hint for a size or a model, or one that only excludes
// other disks, does not show that this disk was meant. The RAID steps refuse disks with such metadata in any state,
// because they would create arrays on all disks of a node.
package imaging
