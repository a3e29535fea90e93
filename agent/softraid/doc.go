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
package softraid
