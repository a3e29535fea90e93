// Package partition reads partition tables, moves a GPT's backup to the end of a grown disk, adds and grows partitions,
// and plans and creates the table of a disk that boots an image of a root file system.
//
// GPT follows UEFI 2.10 section 5.3, with logical sectors of at least 512 bytes; if the primary is broken, the backup
// is read. MBR supports primary partitions and, read-only, logical ones. Changes preserve other entries byte for byte
// and write only what must change. A table for another sector size than the device's is ignored, as by the kernel and
// the firmware.
//
// # go-diskfs encodes and decodes checked tables
//
// go-diskfs encodes the table of a new layout, GPT or MBR, and the entry of a partition that is added, and it decodes
// the entries of tables that are read. The rest is code of our own, because any tenant can have written the tables, and
// because the data of other systems must be kept byte for byte. diskfs_test.go has a test for each of these reasons. If
// one fails after an update, its code can be removed.
//
//   - GPT headers are checked here. go-diskfs allocates the size that a header names, panics on the largest sizes, and
//     accepts a header that names another position. It rejects larger headers, later revisions and larger entries,
//     which the specification allows. So it decodes a copy in memory of the checked table, with header and entries
//     truncated to the minimum size. It does not read the backup if the primary is in a sector that cannot be read.
//   - An existing table is not written by go-diskfs. It writes the complete table: data after a name or a header is
//     lost, entries that begin after a boot loader are moved over that loader, entries that do not fill a sector are
//     written over the backup's header, and one entry whose first sector is greater than its last makes the whole table
//     unwritable. Moving the backup changes four numbers of the header and two checksums, so that a library would save
//     little. To use it only for tables that it writes back unchanged would need two code paths, and the one for
//     unusual disks would rarely be tested.
//   - The first sector is written last. go-diskfs writes the protective MBR before the table that it announces, and
//     truncates a size of 2^32 sectors or more. It encodes the sector in memory instead, which is written when the
//     table is on the medium. The sector of an MBR gets the disk ID, which go-diskfs does not write and without which
//     partitions have no PARTUUID.
//   - The statuses of an MBR are checked here. go-diskfs rejects the table for one entry with an invalid status. A
//     tenant could hide partitions from an erase in this way, so invalid statuses are cleared in the copy for
//     go-diskfs. It does not follow logical partitions, and supports only sectors of 512 bytes.
//   - The length of names is checked before. It panics on a name of 36 characters that has more than 36 UTF-16 units.
//   - Errors are recorded separately, because it returns only their text, and callers distinguish a full and a broken
//     disk by the error.
//
// # preserve_ephemeral
//
// ironic-python-agent assumes that a disk has the layout that it would create itself, and writes to partitions by their
// numbers. With an additional config drive or another flavour, it writes the image over the data that must be
// preserved. Here the table on the disk must be the planned one, with two exceptions. The partitions of the config
// drive and the root can be larger, because an earlier config drive was larger or a system has grown its root. The EFI
// system and BIOS boot partitions can have any size, because the configuration can have changed. Otherwise nothing is
// written, and the error names the partition and both values.
package partition
