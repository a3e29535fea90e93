// Package cleaning runs the steps that erase or test all disks of a machine. It selects the disks, decides what a step
// does to each of them, and records evidence of what was done. It also removes crash logs and boot entries from the
// firmware. The package has more than 20 files because each has one part of a run (selecting disks, arrays, decisions,
// erase, results, evidence, progress) or one kind of storage that a run must not miss.
//
// # A disk that fails does not stop the others
//
// If a disk is unreadable or busy, the tenant's data on the others must still be erased. They are erased first, then
// the step fails and names the rest.
//
// # A conflict ends the step before the first write
//
// A step recovers the disks (passwords, a sanitize in progress), decides what it does to each of them, checks the
// decisions for conflicts, and then acts. Each disk is examined again when it is its turn: a decision that no longer
// holds is an error of the disk. These conflicts end the step, also burnin_disk, before anything is written:
//
//   - A shared file system on any disk: it is probably in use by other machines.
//   - A name of skip_block_devices that several arrays have, and a spare of a protected array: the operator protects
//     other data than the superblocks say. A tenant can have written one of them. The name is a conflict also if the
//     step leaves the disks as they are, unless skip_block_devices names these disks, too.
//   - Several arrays that look like the mirrored EFI system partition beside a protected array.
//
// The self-test shows the same decisions.
//
// A disk that the guard cannot read is not erased, because its content is unknown. In the partitions of tables that are
// neither a GPT nor an MBR the guard searches only for gfs2: these tables have no types of GPFS and VMFS. Refusing such
// disks was rejected, because a tenant could stop the cleaning of a machine by writing such a table. The guard also
// searches members of arrays for gfs2: the superblock of the array can be older than the file system, and an array with
// metadata at its end has the same content as its members.
//
// # Disks that appear late fail the erase
//
// The erase steps must cover all disks. So they fail if drivers of the devices present at boot are still being loaded
// when they list the disks, and if a disk appears before they end. The existing disks are erased nevertheless, and the
// error names the new ones. Erasing the new disks as they appear was rejected: the guards examine all disks before the
// first one is erased. A disk that appears after the step cannot be noticed: no driver reports when it has found all of
// its disks. A multipath map that is created during the step is not a new disk if one of its paths existed.
//
// # NVMe controllers without visible namespaces
//
// A tenant can detach every namespace. The controller then has no block device, and the unattached ones are not found
// through a disk of the list. An attached namespace can lack a block device although others of its controller have one:
// the kernel drops one whose data it cannot read. So after the disks, each step queries every controller on PCI Express
// (/sys/class/nvme) through its character device, and compares the attached namespaces with the ones that have a block
// device (nsid). The unattached ones are reported here only if no disk of the controller was erased, because the erase
// of a disk reports them itself. "Metadata steps" are erase_devices_metadata and express with NVMe secure erase off:
//
//   - Unattached namespaces, private subsystem: error; named in the result of metadata steps.
//   - Unattached namespaces, shared subsystem: named in the result.
//   - Attached namespaces without a block device, and controllers that cannot be described, opened or queried: error.
//   - No namespaces: logged.
//   - All disks of the controller are left untouched (skip_block_devices, read-only, members of a protected array):
//     named in the result.
//
// The last case does not apply to a controller with some disks untouched and others erased: its missing namespaces are
// an error. A controller that does not answer can have attached namespaces that the kernel did not find, so it is an
// error, as is a disk that cannot be read. Without namespace management (OACS) a controller has no unattached
// namespaces. If a disk is protected, the operator who protects it also decides about the rest of that device, and the
// error could be avoided only by removing the protection. Controllers of NVMe over fabrics are not queried: the
// namespaces belong to a storage array.
//
// # A storage controller without a driver fails the erase
//
// Each erase step ends with a check of the controllers without a driver (package block says how they are found):
//
//   - SCSI, RAID, ATA, SATA, SAS, NVMe, UFS, other mass storage (0180h), and every other subclass: error with address,
//     PCI ID and class.
//   - IDE (0101h) behind which a drive can be, or that cannot be asked: the same error, with the finding.
//   - IDE whose I/O ports are switched off, or without a drive; IDE or other mass storage with the PCI ID of a function
//     that never has media; named by skip_storage_controllers: named in the result.
//   - Virtual functions of SR-IOV, which belong to virtual machines: ignored.
//
// skip_storage_controllers is an option and a key of the node's driver_info; a controller that either names is
// excluded. It is for a controller that nobody uses, such as one with disabled ports or without disks. It lists PCI
// addresses (ipa-skip-storage-controllers=0000:3b:00.0,0000:5e:00.0), and also excepts an NVMe controller that has a
// driver and does not answer. Only such a controller is excluded from the check: disks that the kernel knows are erased
// nevertheless. Addresses are not validated, because a wrong one has no effect: the step still fails.
//
// TestEraseServers runs the check for more than 100 models (testdata/README.md), with a drive behind each IDE
// controller. The following controllers have no driver; all others have one. Steps succeed with the PCI Express switch
// 1000:c010 (0180h; NVIDIA DGX A100, Fujitsu RX2540 M6) and IDE redirection 8086:a1bc (workstations with C620 chipset).
// They fail with PERC S300, 1028:0016 (RAID, no Linux driver; Dell R410), the SAS unit 8086:1d6f (unknown to Linux;
// Fujitsu RX200 S8), the function of iLO 5 for software RAID, 103c:193f (RAID, no disks itself; HPE Gen10 with the SATA
// ports in RAID mode), and iSCSI functions of Chelsio's network cards, 1425:4501 and 1425:5501 (SCSI).
//
// # Disks of a network are erased only if an option allows it
//
// ironic-python-agent erases every disk that the kernel shows. A disk that is reached over a network can belong to
// other machines, too: a LUN that is mapped to a whole cluster, or one that a wrong zone makes visible. Its tenant data
// is a matter of the storage system, which also outlives the node. So erase_devices, erase_devices_metadata,
// erase_devices_express and burnin_disk leave such disks untouched, and name them with the reason in the log, in their
// result and in the evidence. The option erase_network_disks (ipa-erase-network-disks=1) lets them erase these disks.
// The inventory lists such disks always, and images are written to them. Package block says how they are recognized.
//
// An array with one member of a network is left untouched as a whole. Its members in this machine are erased. If sysfs
// does not tell how a disk is connected, the disk could belong to other machines. Erasing it could destroy their data,
// and leaving it untouched could pass a tenant's data on. So the step fails for this disk, and names it with the
// reason.
//
// The RAID steps leave such disks as they are, too: without physical_disks they would overwrite every LUN, and with a
// hint such as a size any that matches. Even a hint that names the LUN needs the option: its author may not know that
// other machines use the LUN, and an operator who wants arrays on LUNs sets the option once. An array that is on disks
// of the machine and of a network is an error, because it can neither be kept nor be deleted as a whole.
//
// # Members of RAID arrays are erased, unless the node object names the array
//
// ironic-python-agent assembles all arrays at its start, skips their members, and erases the arrays instead. A tenant's
// data outside of the arrays remain. This ramdisk assembles only arrays that Ironic created, and also erases the space
// of their disks outside of them. The treatment of a disk depends on its md superblocks. A superblock is used only if
// its checksum, position, level and sizes are valid; any other is data, and erased.
//
//   - An array that skip_block_devices names is left untouched if no other array has the name, see below. The other
//     partitions of its disks are erased one by one; the partition table and the space outside of the partitions stay.
//     So does the mirrored EFI system partition (esp) beside it.
//   - The erase steps erase an array that Ironic created and keep it, because Ironic expects it to exist after
//     cleaning. If that is not possible, and to all other steps, a member of such an array is an error that names disk
//     and array. An entry of raid_config is compared by its volume_name. If the entry or the array has no name, they
//     are compared by the level. An entry without a level then matches every array. Sizes are not compared: an error is
//     safe, and a rounded size must not turn an array of Ironic into an unknown one.
//   - A disk with such a member is not written to either. If root device hints or its size select it, the choice of the
//     root disk is an error that names disk and array. Another disk is not chosen instead, because it could contain
//     data that must be kept. The assembled array is not a member of itself, and can be chosen.
//   - If the node names arrays and a table has partitions that the kernel does not show, the disk is an error. Linux
//     does not read the backup of a GPT, so that damage to the primary hides all members on the disk. Superblocks could
//     be read at the positions that the table names, but the other partitions could not be erased one by one. The
//     operator repairs or removes the table, or names the disk. The same error ends the choice of the root disk.
//   - All other members are erased like plain disks. The metadata wipe removes the superblock at every position that
//     one can have, on the disk and on its partitions, and the tables at both ends of the array's data.
//
// The result of each erase step has an entry for each disk with the method for the erased parts, the passes of the
// overwritten parts, and the reason for the untouched ones. Ironic stores the result and does not interpret it.
//
// Package softraid decides whether an array is protected by its name.
//
// # Arrays of raid_config are wiped without being assembled
//
// Regular cleaning must keep the arrays that Ironic created. ironic-python-agent assembles them and erases the
// assembled device, while the space beside it stays. Here erase_devices_metadata zeroes both ends of the data on each
// member, which are the ends of the array, and everything that precedes and follows superblock and data. Equal ranges
// of zeros are equal copies and have zero parity, so that nothing needs to be assembled or resynced. Superblock and
// bitmap stay, and the partition table: a step that is interrupted loses no array. Boot code, the space between
// partitions, and all other partitions are wiped as on any disk. Afterwards the table must be the same, and the
// superblocks the only ones.
//
// Package softraid decides which arrays can be kept. Members of other arrays of raid_config fail the step. An array
// that runs is stopped for the step and started again afterwards, so that the kernel continues to resync it.
//
// # Arrays of raid_config are erased through their devices
//
// erase_devices cannot use the erase commands of disks with arrays that stay: they would remove the superblocks. The
// array's device is overwritten, so that copies and parities are consistent at any time, also after random data and if
// the step is interrupted. The writes must reach all members:
//
//   - The kernel drops a member that fails, and continues without it. After the overwrite all members must be in sync.
//   - The kernel keeps a member with blocks that cannot be written, and records them. All lists of bad blocks must be
//     empty.
//   - A mirror is read from one of its members. After a last pass of zeros, the data of each member are therefore read
//     back on the member too, at 2 % of the places. Random data are only read back through the array.
//
// The kernel ignores incomplete chunks at the end of a member, and in an array of level 10 with an odd number of chunks
// the last one may be unused. These bytes, the sectors of the superblock's 4 KiB that the kernel does not read,
// everything before the data except the bitmap, and everything that follows the data are overwritten on each member
// while the array does not run. So are the other partitions and the space outside of partitions. A tenant can store
// data in unused parts of the structures that are kept: on each member in the superblock (up to 4 KiB) and the bitmap
// (4 KiB, and 2 KiB more for each TiB of a mirror, but at most 128 KiB), and on each disk in the partition table (up to
// 16 KiB in each copy of a GPT, and the rest of the sectors of its headers). They stay. The second header of LUKS 2 can
// be where a bitmap of more than 8 KiB is; the disk fails the step if it is there.
//
// Overwriting the members instead, with equal ranges of zeros, was rejected: it is not possible with random data, and
// an interrupted step would leave different copies that the kernel takes for equal. erase_devices_express promises to
// erase NVMe disks, and formatting would remove the superblocks. Arrays with NVMe disks are overwritten with zeros
// once, which takes longer than formatting. With agent_enable_nvme_secure_erase off, the step erases only metadata,
// also of these arrays.
package cleaning
