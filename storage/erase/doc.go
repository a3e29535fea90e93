// Package erase erases block devices: only the metadata (partition tables and signatures), or all data by the best
// technique that the device supports. A [Recorder] receives the report of what was done.
//
// Techniques are NVMe Format and Sanitize (package nvme, NVM Express base specification 2.0), the erase and the
// sanitize commands of ATA drives (package ata, ACS-4), the sanitize commands of SCSI disks (package scsi), and
// overwriting with direct I/O. A discard (TRIM, UNMAP) is used only on request, after the erase of the drive itself has
// failed.
//
// The package has about thirty files, one for each technique and one for each question that decides between techniques.
// A technique cannot be a package of its own without exporting how it reports, waits and falls back to another.
//
// # Erasing the metadata
//
// ironic-python-agent runs wipefs and "sgdisk -Z" on disks and partitions and zeroes 33 sectors at both ends. wipefs
// removes the signatures that it knows. Here both ends of the disk and of each partition are overwritten instead, 8 MiB
// each, whatever their content; so are the sectors that name logical partitions, and both ends of the data of RAID
// arrays. Partitions come from the table and, for other kinds of tables, from the kernel. A tenant can add an invalid
// entry to an MBR, such as one that starts beyond the end of the disk: all other entries are still used. Of the sectors
// that name logical partitions, the ones that Linux follows are overwritten: up to partition number 255, and at most
// 100 in a row that name no partition. A tenant can make a longer chain; the rest of it stays on the disk. Afterwards
// all overwritten sectors are read again and must be zeros. Partitions of an earlier table are not searched: their file
// systems reappear if the same table is written again. Use erase_devices to erase their content.
//
// Ceph's BlueStore has copies of its label at 1, 10, 100 and 1000 GiB of its device (bdev_label_positions), and finds
// the OSD by them if the first label is gone. So these places of the disk, of each partition and of the data of each
// array are read, and a block that starts with the text of a label is overwritten. Other content there stays. Logical
// volumes of LVM are not searched for copies. Their place on the disk follows only from LVM's own metadata, which this
// erase overwrites: a volume may consist of several pieces on several disks. ironic-python-agent and wipefs do not
// search copies at all. A copy in a former volume cannot be found before a volume is created at the same place of the
// disk, as a new installation of Ceph does that gives the whole disk to one volume. Where disks are used for Ceph by
// turns, use erase_devices, or "ceph-volume lvm zap" before the node is cleaned.
//
// # Which parts of a disk an overwrite reaches
//
// An overwrite writes the size that the kernel reports. A host protected area (HPA) makes an ATA disk report less: a
// tenant can set a permanent one (hdparm -N pSECTORS), and its content would remain. The module libata is therefore
// loaded with ignore_hpa=1, so that the kernel asks each disk for its full size and uses it. The kernel parameter
// libata.ignore_hpa=0 restores the kernel's default. A kernel with libata built in needs libata.ignore_hpa=1 as a
// kernel parameter: its disks are found before a program runs. In Debian's kernels libata is a module.
//
//   - HPA of a disk that libata drives: overwritten. Not if the disk refuses or firmware has locked it (SET MAX FREEZE
//     LOCK; the kernel logs "skipping HPA handling"), nor behind a RAID or SAS controller or a USB bridge that
//     translates from SCSI itself.
//   - A size reduced by SET ACCESSIBLE MAX ADDRESS (ACS-3), which replaces the HPA: not overwritten, unknown to the
//     kernel; reported (package ata).
//   - A size reduced by a device configuration overlay (DCO): not overwritten, because the disk reports the reduced
//     size as its full one; reported.
//   - A SCSI disk whose size was reduced by MODE SELECT: not overwritten, because the kernel does not restore it.
//   - Sectors that a disk has replaced, spare blocks of flash: not overwritten.
//   - Persistent memory with a namespace of mode fsdax, raw or sector (pmem): overwritten, except the metadata of the
//     mode and the free blocks of mode sector. Mode devdax has no block device, and regions without a namespace are not
//     shown.
//
// Persistent memory (NVDIMM) is listed by the name pmem0 if its namespace has a block device. Its mode and the
// namespaces are in labels on the modules, which a tenant can change. An operator of machines with such modules deletes
// the labels with the tools of the vendor, or erases the modules by their firmware.
//
// The kernel unlocks an HPA until the disk is reset or loses power; it does not remove it. An image that is written to
// such a disk uses the full size, and its GPT ends where firmware and the deployed system no longer see the disk. A
// machine whose disks must keep an HPA therefore needs libata.ignore_hpa=0; on others the HPA must be removed
// permanently (hdparm -N pMAX). A few old disks answer the query for the full size wrongly or not at all. With
// ignore_hpa=0 the kernel ignores that, but with ignore_hpa=1 it may not use the disk. Unlocking only during an erase
// was rejected: it needs ATA commands that no test here can run, because QEMU has no disk with an HPA.
//
// # Stuck commands
//
// A process that waits for a disk in the kernel cannot be interrupted, by a signal or by the end of a context. Linux
// aborts a command after some minutes of retries and resets, but with a broken driver possibly never. A disk without
// progress for 15 minutes, or for 30 seconds after the step was cancelled, is therefore abandoned: the step fails with
// "still busy in the kernel", and the next disk is erased. An NVMe Format and an ATA secure erase report no progress;
// their limits are 24 hours, and the time that follows from the drive's estimate, after which the kernel ends them. The
// goroutine of that disk stays until the kernel returns. It then writes nothing more, and only removes the password of
// an ATA secure erase that failed. If it was writing, it holds the disk open exclusively until then, so that no later
// command can write to it; if it was only reading, it does not. Each wait in the kernel could have a limit of its own
// instead, but then buffers and files would be freed that the kernel still uses.
//
// While such a command runs, screen and log show the elapsed time, once for each percent of the drive's estimate, or
// each minute. An ATA drive says it in its IDENTIFY data; percentage and time left follow the estimate, and stay below
// 100 % if the drive takes longer. Drives need not say it, and NVMe has no estimate for a Format: the log then says
// that there is none. The progress indicator in the data of a namespace is not queried: if the controller did not
// answer during the Format, Linux would reset it after a minute, which could abort the Format.
//
// # Crash logs are removed through efivarfs
//
// Linux stores the log of a crash in UEFI variables, and shows them in pstore only if efi_pstore is loaded. The
// variables are removed directly: this needs no module, and also finds logs that a module with other settings would not
// show. A machine booted by BIOS has no UEFI variables, although a boot by UEFI can have left crash logs in them.
// erase_pstore then succeeds, because a failure would stop the cleaning of every such machine, and its result and a
// warning say that the variables were not searched. Firmware that describes itself as one without UEFI (SMBIOS type 0)
// is excepted.
//
// # ATA drives are erased by their own commands, and checked
//
// SATA and IDE drives are erased as by ironic-python-agent: by the enhanced secure erase, otherwise by the normal one.
// The commands are sent by package ata, because the ramdisk has no hdparm. The differences from ironic-python-agent
// (IPA):
//
//   - Security frozen, or blocked by wrong passwords (IPA: error): sanitize by block erase, crypto scramble or
//     overwrite, the first that the drive has; otherwise error.
//   - No security, but sanitize (IPA: overwrite): sanitize.
//   - No security, sanitize frozen or not answering; or IDENTIFY DEVICE fails (IPA: overwrite): overwrite, with the
//     reason in the result.
//   - Locked by an interrupted erase (IPA: unlocked with the passwords NULL and empty): the same, and security
//     disabled, before a step reads the disk.
//   - Unlocked, password of an interrupted erase (IPA: erase): security disabled before a step reads the disk, then
//     erase.
//   - Unlocked, another password set (IPA: error): a new password is set, which needs no former one; then erase.
//   - Locked by another password (IPA: error): error that says how to use the user or the master password.
//   - Frozen, password set (IPA: error, or overwrite): sanitize, but an error, because the password stays.
//   - Erase failed (IPA: unlocked): unlocked, and security disabled; if that fails, the error says how to do it. With
//     agent_continue_if_secure_erase_failed both overwrite, here with the reason in the result.
//   - Sanitize in progress, or failed earlier (IPA: not detected): waited for, or cleared, then erase.
//
// Secure erase comes before sanitize because operators know it from ironic-python-agent, whose options name it.
// Sanitize is in no way inferior: it needs no password, reports its progress, and continues after a reset. A frozen
// drive is not unfrozen by suspending the machine: firmware of servers often does not resume. The error says what
// helps.
//
// The password is 32 zero bytes. It is no secret: the drive only needs one. A drive that loses power during the erase
// is locked by it, and the next erase step removes it, also erase_devices_metadata and erase_devices_express. With
// agent_enable_ata_secure_erase off, no step sends ATA commands. erase_devices never reports a drive that is left with
// a password as erased, whichever password it is, and does not overwrite it instead: after its next power cycle, the
// next tenant could not use it. The other two steps leave an unlocked drive its password unless an erase has set it: it
// can be the firmware's, which unlocks the drive at each start. The master password is neither used nor changed. It
// survives an erase, and has an effect only while security is enabled.
//
// While a secure erase runs, it cannot be stopped, and the drive answers nothing. If Ironic aborts the step, the step
// ends with "still busy in the kernel" and the drive continues. The time limit is twice the drive's estimate, plus half
// an hour; 72 hours without an estimate; and at least, as in hdparm, a second for each 30 MiB plus half an hour,
// because the reset at its end aborts the erase and leaves the drive locked. A sanitize is queried every 5 seconds. It
// may be silent for 10 minutes, because resets do not end it, and without progress for 2 hours.
//
// # Samples
//
// Some drives report success and erase nothing. So 256 blocks of 4 KiB with random data are written before an erase, at
// both ends and at one random place in each 256th of the disk, and compared afterwards. A drive that keeps any range of
// 1/128 of its size is detected with certainty, one that keeps scattered blocks with a probability. Comparing with
// samples of the previous content was rejected, because an erased drive may look as before. Only a host-managed zoned
// disk, which cannot be written at random places, is compared with its previous content, except where all bytes of a
// sector are equal.
//
// # Every erased disk is read back
//
// A drive can accept writes and lose them, and the result "overwrite" would then be wrong. So erase_devices reads every
// disk back, and a difference fails the step. ironic-python-agent reads nothing back. The cost is estimated at 5 % of
// an overwrite of a hard disk; an option to save it was rejected, because the result would promise more than was
// verified. Package evidence selects the places. The random data of a last pass is not kept. It is AES in counter mode
// with a key that exists until the disk is read back, so that any place can be computed again.
//
// No standard says what a drive returns after it has erased itself. Zeros, ones and other constant values are common,
// also different ones in parts of a drive: each flash chip has its own value, deallocated blocks are zeros, and a
// sanitize by overwriting writes a pattern. So a sector of equal bytes counts as erased, whatever the value. A drive
// that returns data between such sectors has probably kept them. The drive fails; with
// agent_continue_if_secure_erase_failed it is overwritten.
//
// Content without a single uniform block passes, if the samples are gone. A drive can write a pattern, and many encrypt
// all data and delete the key for each of their erases. Such a drive fails only if it also returns uniform blocks: it
// keeps the addresses of blocks that were written, whose content is noise without the key, and returns zeros for
// others. No such drive is known. Noise cannot be distinguished from data that a tenant has encrypted, so an exception
// for it was rejected. After an erase by deleting a key (crypto), only the samples are compared. Protection information
// and other metadata are not part of the blocks that are read.
//
// # NVMe Format is used on private subsystems only
//
// A Format can erase more than one namespace (FNA), and namespaces exist that no block device shows: unattached
// namespaces, and namespaces of other controllers. The erase therefore asks the controller: CMIC and NMIC for a shared
// subsystem, the lists of active (CNS 02h) and allocated (CNS 10h) namespaces for the rest. Samples are written before
// a Format and compared after it. A drive that keeps them fails the step; erase_devices_express erases the metadata
// before it fails.
//
// A shared subsystem may belong to several hosts. Its visible namespaces are overwritten, and the result
// names the namespaces that were not erased. On a private subsystem an unattached namespace is an error of
// erase_devices and erase_devices_express: its data would stay for the next tenant of the machine. The visible
// namespace is erased before that; erase_devices_express erases at least its metadata. erase_devices_metadata leaves
// data everywhere, so it succeeds and names the unattached namespaces in its result. So does erase_devices_express with
// agent_enable_nvme_secure_erase off, because it then formats nothing. A controller that manages namespaces (OACS bit
// 3) and does not list them can have unattached ones, so that is the same error. One without namespace management has
// none; any other reason why the other namespaces are unknown is named in the result. The agent does not attach a
// namespace, because that would change which disks the machine shows, and with them which disk a root device hint
// selects. The operator attaches or deletes it.
//
// The kernel reports no size for a namespace of an unknown command set or with metadata after each block, or hides it.
// A tenant can format one in this way, and NVMe commands can still access its content. Such a namespace is therefore an
// error of every step that erases, and not a disk that is missing from the list; skip_block_devices excepts it by its
// name. The same holds for SCSI and virtio disks without a capacity: disks with sectors of 520 bytes, disks whose
// format was interrupted, and broken ones. They stay out of the inventory. Removable disks are excepted, because a card
// reader without a medium is one; so are passive paths to a disk that has a capacity on another path. Management units
// of disk arrays that look like such a disk (LUNZ) are listed in skip_block_devices, by their model.
//
// # An NVMe drive that cannot be formatted is sanitized
//
// ironic-python-agent overwrites an NVMe drive without a Format command, and fails if Format is rejected. Here
// erase_devices then uses Sanitize, if the drive has it (SANICAP): block erase, crypto erase, overwrite with one pass,
// the first that the drive has. An overwrite by the host does not reach the spare blocks of an SSD. Format comes first
// because operators know it from ironic-python-agent, and because it erases one namespace. erase_devices_express does
// not sanitize, because that can take hours. agent_enable_nvme_secure_erase switches off both, in either step: then
// erase_devices overwrites, and erase_devices_express erases the metadata.
//
// A sanitize erases all namespaces of the subsystem. So it is used only on a private subsystem all of whose namespaces
// the step erases completely. A namespace that is unattached, has no block device, is skipped, read-only, in use or
// cannot be read prevents that. So does a node object that names RAID arrays: partitions of a namespace could be
// members of one. The namespaces of a controller are erased one after the other, and each by a sanitize of its own,
// during which the others are held exclusively. One sanitize for all was rejected: each namespace has its own samples,
// evidence and error, and a block or crypto erase takes minutes at most. The cases of erase_devices:
//
//   - No Format, or Format rejected by the controller; sanitize: sanitized.
//   - Format not answered (time limit, reset): error.
//   - Namespaces that must stay, or a shared subsystem: overwritten; error if Format was rejected.
//   - Sanitize rejected, aborted or failed: error with the status of the drive. Sanitize succeeded, samples are left:
//     error. With agent_continue_if_secure_erase_failed both are overwritten, with the reason in the result.
//   - Sanitize or failure mode that does not end: error, also with agent_continue_if_secure_erase_failed.
//   - Sanitize in progress at the start of any erase step: waited for, then erased. Failure mode: ended (Exit Failure
//     Mode), then erased.
//
// The log page Sanitize Status describes the last sanitize, which can be an earlier one. "Completed" therefore counts
// only if the drive was seen sanitizing after the command, or if the log differs from the one that was read before the
// command: another state, another command, or the bit Global Data Erased, which the write of the samples has cleared.
// Otherwise the step fails after a minute. The log is queried every 5 seconds. It survives resets of the controller, so
// it may be silent for 10 minutes; without progress for 2 hours, or for twice the drive's estimate, the step fails. The
// samples are read with direct I/O.
//
// Two bits of the command are choices. Allow Unrestricted Sanitize Exit (AUSE) is set: without it, a drive whose
// sanitize fails accepts nothing but another sanitize. No-Deallocate After Sanitize (NDAS) is not set, so that NODMMAS
// has no effect: blocks that stay allocated can be unreadable after a block or crypto erase, which would fail the
// read-back and the next cleaning. On a shared subsystem the failure mode is not ended, because other hosts have it,
// too.
//
// # A SCSI disk that supports it is sanitized
//
// SAS disks, and disks of adapters that do not tell how their disks are connected, are sent the command SANITIZE
// (SBC-4) if they say that they support it: block erase, cryptographic erase, overwrite with one pass of zeros, the
// first that can be used. The switch is agent_enable_ata_secure_erase, which in ironic-python-agent is the switch of
// all disks but NVMe. ATA and NVMe drives behind SAS adapters are overwritten, because their commands pass through the
// adapter's firmware. Disks of a network are never sanitized.
//
//   - REPORT SUPPORTED OPERATION CODES rejected, or without SANITIZE (QEMU, most RAID volumes): overwritten.
//   - The command can affect other logical units (field MLU), and the target has others; or it is without IMMED and
//     AUSE: overwritten, with the reason in the result.
//   - Blocks cannot be read after the technique (fields WABEREQ and WACEREQ): the next technique. If the disk did not
//     say so: overwritten, with the reason in the result.
//   - Sanitize rejected, aborted or failed: error; with agent_continue_if_secure_erase_failed overwritten, unless the
//     disk stays in failure mode. Samples are left: error, or overwritten in the same way.
//   - Sanitize in progress, or failed, at the start of any erase step: waited for, or the failure mode is ended, then
//     erased.
//
// The disk is queried every 5 seconds by TEST UNIT READY, whose sense data have the progress. As with ATA and NVMe
// drives it may be silent for 10 minutes and without progress for 2 hours. No sanitize may take longer than 72 hours,
// or twice the time that 30 MiB per second need if that is longer: a progress that goes up and down would never end. A
// disk that is ready has completed the sanitize or never started one; no sense data distinguish these. So it counts as
// completed only if it was seen in progress, or if its samples have changed, which shows also one that ends before the
// first query.
//
// Virtual disks of RAID controllers look like SAS disks. One that accepts SANITIZE is compared with its samples and
// read back like any other, and its evidence never claims purge. Some drivers take a disk offline that sanitizes
// itself. The step then fails after 10 minutes, and the sanitize continues in the disk. A machine that restarts during
// a sanitize may show the disk without a size until it ends; an erase step fails for such a disk, and does not wait for
// it.
//
// # Discards
//
// With agent_enable_discard_erase, a disk whose own erase failed is discarded: for example an SSD whose security and
// sanitize are frozen by the firmware at each start. A disk without an erase of its own is overwritten, as by
// ironic-python-agent, because an overwrite is the better erase. So is every disk of a node whose
// agent_enable_ata_secure_erase is off. If the discard fails, or not every byte is zero afterwards, the step fails.
// With agent_continue_if_secure_erase_failed the disk is overwritten instead, with the reasons in the result.
//
// No kernel guarantees what a discarded block reads as, SBC-4 lets a disk ignore UNMAP, and a medium can hold the data
// until its blocks are used again. Read zeros only show that the disk does not return the data now. The evidence
// therefore claims no category, and names the command: BLKSECDISCARD, which must erase all copies of the data, or
// BLKDISCARD if the disk does not support that. The differences from ironic-python-agent (IPA):
//
//   - Samples (IPA: 10 places of 1 MiB, written through the kernel's cache): 256 blocks as for all other erases,
//     including both ends, with direct I/O. They are read before the discard, too, because a device that ignores writes
//     can return zeros.
//   - Read-back (IPA: the samples): every byte, which takes as long as reading the disk. A disk can keep parts of its
//     allocation units, or any other blocks.
//   - Hard disks, also with TRIM, and zoned disks (IPA: discarded): not discarded, because the sectors keep the data.
//     The kernel takes old SSDs that report no rotation rate for hard disks.
//   - NVMe drives (IPA: discarded after a failed Format): not discarded, because they are sanitized.
//
// A disk is discarded in parts of 1 GiB, which end at multiples of its granularity.
//
// # Tests without drives
//
// QEMU has no ATA disk, NVMe controller or SCSI disk with these features, and no real SCSI disk with SANITIZE was at
// hand. Tests compare the commands with the tables of ACS-4, SAT-4 and the NVMe specification, and with the commands
// that sg_sanitize of Debian sends, and run the erase against models of the states of these drives.
package erase
