// Package multipath joins the paths to a logical unit of a storage network or a SAS enclosure into one disk: a map of
// the device mapper's target "multipath", as multipathd does (multipath-tools with find_multipaths yes and otherwise
// default settings).
//
// Two SCSI disks are the same logical unit if page 0x83 of their vital product data (SPC-4, 7.8.6) has the same
// globally unique designator: NAA, SCSI name string, UUID, EUI-64, or T10 vendor ID with the serial number. The first
// one in multipathd's order is compared. Similar disks without such a designator are logged as a warning. The map is
// named by that identifier and has the UUID mpath-ID.
//
// One path is used until it fails, then the next. I/O that fails on all paths is an error and is not queued. Failed
// paths are not tested again, because a map is needed only during a deployment. The kernel joins the paths of an NVMe
// namespace itself. If that is disabled (nvme_core.multipath), they are logged as a warning, too.
//
// # Why not multipathd
//
// A disk of a storage network that appears twice would be chosen, cleaned and written to by one path, and the
// partitions of the other path would become stale. multipathd is a daemon, a library, a configuration and udev's rules.
// A ramdisk needs only one table for the kernel, which then switches from a failed path to another by itself. So the
// identifiers that are read from every disk anyway are compared when disks are listed, and if two are equal a map is
// created. A machine without such disks neither waits nor loads a module for it. If the last path fails, writing fails
// too instead of waiting forever, so that the conductor receives the error.
//
// NAA is not used if it is locally assigned, and a T10 vendor ID only if it contains the unit's serial number, as SPC-4
// recommends. An identifier that a target composes of its vendor's name and a number ("1IET 00010001") can be the same
// on two servers, and if two disks were joined, each would get half of an image. Paths that differ in size or serial
// number, or one of which is in use, are not joined, with a warning.
package multipath
