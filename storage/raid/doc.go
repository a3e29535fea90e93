// Package raid reads, checks, creates, assembles, stops and wipes arrays of Linux software RAID (md) by the ioctls of
// linux/raid/md_u.h and by sysfs (Documentation/admin-guide/md.rst), without mdadm. Package md encodes and decodes the
// superblocks.
//
// Only complete arrays are assembled. External metadata, spares, journals, and changes of an array's shape are not
// supported.
//
// # Only complete arrays are assembled, and read-only
//
// All superblocks must be the only ones of their members, with the same UUID, name, level, layout, chunk size, size and
// features. Each role must occur once. The event counts may differ by one, as in Linux and mdadm: the kernel updates
// the superblocks one after the other, and a loss of power can interrupt that. If data were being written, the newest
// superblocks say that the array is not clean, and the kernel resyncs it. The same difference remains if the array has
// dropped a member in its last update. Therefore the newest superblock must have the role of each older member; older
// kernels do not check this themselves. Members with larger differences lack data, and the kernel would drop them. An
// array that is not complete is named with the reason and not started: the first write to it would outdate the missing
// member.
//
// The kernel starts the array in the state read-auto: it changes no superblock, bitmap or data until somebody writes to
// the array's device. Level 0 has nothing to resync: the kernel shows another state, and changes nothing either.
// TestGuest compares all bytes of the members. Then the array must have the size that follows from its superblocks, and
// all members in their roles.
package raid
