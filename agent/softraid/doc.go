// Package softraid applies Ironic's configuration of software RAID to the disks of a machine.
//
// It parses the configuration, and finds, plans, creates, deletes and assembles its arrays. Its rules decide which
// arrays the other parts of the agent must leave as they are: arrays that skip_block_devices protects, and arrays that
// Ironic created.
//
// # Arrays are created and deleted without mdadm
//
// Package md encodes the superblocks, and the kernel starts the arrays by the ioctls that mdadm uses. Everything is
// checked before the first write: the configuration with all its problems, that disks are free, writable, without
// partitions and shared file systems, and that all partitions and superblocks fit. With delete_existing, this includes
// the new configuration, so that one that does not fit leaves the existing arrays alone. If the kernel rejects an
// array, or has dropped a member when all arrays run, the arrays and partition tables of the configuration are removed,
// and the step fails. ironic-python-agent adds a dropped member again, as if it were new.
//
// apply_configuration refuses a configuration without software RAID, as ironic-python-agent does: it would delete all
// arrays and create none. This includes an empty object. ironic-python-agent accepts it, deletes the arrays, and then
// fails with a Python exception, because the object has no logical_disks. No caller can rely on that. To delete the
// arrays, use delete_configuration.
//
// Too few disks for a level are among the problems of the configuration, and so are hints that find no disk.
// ironic-python-agent counts all block devices, also devices that the array cannot or must not use: existing arrays,
// and disks that skip_block_devices or the hints exclude. It counts them for the levels 5 and 6 of the second array
// only, so that mdadm can fail after the deletion, or creates a mirror of one disk or level 5 of two. Here each array
// counts the disks that it can use: three for level 5, four for level 6, two for the others.
//
// Deleting removes the superblocks and partition tables of disks with members, whether or not their arrays are
// complete. Arrays are not assembled for that: their superblocks name them. skip_block_devices protects arrays as when
// erasing. Some cases are errors, and nothing is written: an array that is also on disks that the list names, a
// protected name that several arrays have, one whose array differs from raid_config's, and members with one UUID that
// cannot belong to one protected array. The content of an array that shares a disk with a protected one is removed, and
// the array is kept, as by ironic-python-agent. Both ends of the data on each member are zeroed for that. Copies and
// parities of zeros are zeros, so the array need not be assembled. If a member shares space with one of a kept array,
// because a superblock of an earlier array was not overwritten, this is an error too.
//
// # Arrays are assembled only by steps
//
// ironic-python-agent assembles all arrays when it starts. Here nothing is assembled before a step needs it: an
// inspection leaves all disks as they are, byte for byte, and a superblock of a tenant starts nothing. Debian's kernel
// has md as a module, so that it detects no arrays itself. Only arrays of raid_config are assembled, read-only, see
// package raid. Arrays that a step has started are stopped when it ends, except the one with the root disk, which the
// commands of a deployment need until the machine restarts.
//
// # Arrays that are protected by their name
//
// A tenant with root on the machine can write a superblock with any name on any disk. A protected name therefore counts
// only if it is unambiguous. All members with the name, including members on disks that the list protects otherwise,
// must have the same UUID, level, number of devices and size, and different numbers and roles. Roles must be below the
// number of devices, and the event counts may differ by one at most. A spare holds no data of the array, so it is not
// protected by the name. If raid_config has an array of that name, level and size must be equal to its entry. Otherwise
// the disks with the name are neither erased nor reported as untouched: the step fails and lists the name, and once up
// to 16 disks and their arrays. The operator removes the wrong superblock, which a member that failed and was replaced
// can have left, or protects the disks by serial number or WWN. The same applies to the mirrored EFI system partition.
// While a disk cannot be read, no array is protected by its name: that disk could hold the array that is meant. Disks
// with the name then fail, too. This applies to broken disks that skip_block_devices excludes as well, because the
// protected array can be on disks that the list names.
//
// A risk remains: whoever had root on the machine while the protected array was there can change its data, replace the
// array by one with its name, level and size, or extend it. Nothing on the disks shows this. Protection by name
// therefore keeps the data of one array with that name, whoever wrote it. Use the serial number or WWN for a disk that
// no tenant may influence, and do not protect a disk whose content must not reach the next tenant. When the root disk
// is chosen, every disk with a protected name is excluded, ambiguous or not: nothing is erased then.
//
// # Arrays that can be kept
//
// A tenant can write superblocks, to keep data that must not be kept. An array is therefore only kept if
// skip_block_devices names no array, raid_config has its name and level, no other array has the name, each member is a
// partition of its own disk of about the configured size, all members are present on disks that the step erases, have
// different roles and were in use together, and nothing but superblock 1.2 and a bitmap right after it needs to be kept
// on them. The tables of the disks must be intact and where partitioning tools put them, and no other partition may
// overlap a member: an erase of the space beside the array would destroy it. Otherwise, and while the array runs with
// other members or is in use, the disk fails the step with an error that names disk, array and reason.
package softraid
