// Package chroot runs a program of an installed system inside that system. It is the only place where the ramdisk runs
// code of an image. It is for operators who allow an image to install its own boot loader
// (enable_bios_bootloader_install).
//
// The program sees its own root, the device nodes of the disk, a read-only sysfs and procfs, an empty /run and /tmp,
// only its own processes, and no open file of the ramdisk. /proc/cmdline contains only the root, because the ramdisk's
// command line contains the agent token and the root password. The kernel log and kernel memory are masked. The program
// has no network and no capability to mount, to create device nodes, to load modules or to read the kernel log, see
// [capabilities]. Only the system calls of a list are permitted, see [confine.ProgramPolicy], so that the program
// cannot undo the masks. Its mounts and processes are in namespaces of their own: the kernel removes them when the
// program ends for any reason. The program writes to the disk as root: this is not a sandbox.
//
// # Why a program of the image runs
//
// GRUB for BIOS machines, and GRUB on an ESP for images that have none there, can only be installed by the image's own
// grub-install. The alternative would be to include the GRUB of every distribution and to support its file systems. The
// program, its mounts and all processes that it started end together, also if it is cancelled or runs for more than ten
// minutes. Its /proc shows no process of the ramdisk, whose memory contains the agent token.
//
// The kernel's command line can contain the agent token and a password. The program reads another one, which names only
// its root, so that its menu contains no parameter of the ramdisk either. /dev has the disk, its partitions and six
// standard nodes; process 1 sets kernel.dmesg_restrict and kernel.kptr_restrict, so that syslog(2) does not return the
// log either. Capabilities to undo this are dropped, except CAP_SYS_ADMIN if the root is on Btrfs or on a map: GRUB's
// ioctls require it there. swapon(2) is not on the list of system calls: the kernel could write the agent's memory,
// with token and keys, to the disk. A user namespace would lock the mounts, too, but then CAP_SYS_ADMIN would have no
// effect for these ioctls. The program can still write to the disk as root, and with the device mapper's control node
// to any disk that it creates a map of.
//
// As findfs(8) does, other disks are searched if the deployed one has no root with the UUID. The root may be on a map
// or an array. Disks that a hardware manager hides and disks that skip_block_devices protects are not searched: the
// programs of a root that was found there would run, and its files would be changed.
//
// GRUB names the root by its UUID only if /dev/disk/by-uuid contains it. The ramdisk has no udev, so the chroot gets
// this one link. The file systems that "mount -a -t vfat" would mount by the image's fstab are mounted before the
// program starts, by the ramdisk, because the program must not mount, and only from the deployed disk. If one cannot be
// mounted, a warning is logged: an fstab often names the ESP of the machine that built the image.
package chroot
