// Package ata sends commands of the ATA Command Set - 4 (ACS-4, INCITS 529) to drives: IDENTIFY DEVICE, the Security
// feature set, the Sanitize Device feature set, TRUSTED RECEIVE, and those that report how many sectors a drive hides.
//
// Commands are wrapped in ATA PASS-THROUGH (16) of SCSI/ATA Translation - 4 (SAT-4, INCITS 491), which Linux receives
// by the ioctl SG_IO of a block device (package scsi). ATA PASS-THROUGH (12) is not used: it cannot carry the 48-bit
// commands of the Sanitize Device feature set. Comments name tables by their titles, because their numbers differ
// between revisions.
//
// # Hidden sectors are reported
//
// erase_devices asks SATA and IDE drives for their full size: by READ NATIVE MAX ADDRESS (EXT) if they support the host
// protected area (HPA), GET NATIVE MAX ADDRESS EXT if they support the Accessible Max Address, and DEVICE CONFIGURATION
// IDENTIFY if they support the device configuration overlay (DCO). The commands change nothing. If a drive hides
// sectors, the method in the log and in the result says how many bytes were not erased, and the evidence claims less
// (docs/erase-evidence.md). A drive that rejects a query, because its firmware has frozen the feature, is erased as any
// other. The method and the evidence then say that it may hide sectors, and the evidence claims as much as if the drive
// hid some: a tenant can freeze the features, too.
//
// Hidden sectors do not fail the erase: firmware of some servers keeps its own data in an HPA, and an operator who
// needs certainty requires a category of the evidence (ironroot erase verify --require clear), which such a disk does
// not get by an overwrite. The sizes are not changed: SET MAX ADDRESS EXT, SET ACCESSIBLE MAX ADDRESS EXT and DEVICE
// CONFIGURATION RESTORE are permanent, can be refused until the next power cycle, and would change the disk under the
// kernel.
//
// The statements of the standard about the drive's own erase are not verified, because hidden sectors cannot be read.
// The normal mode of SECURITY ERASE UNIT ends at the native max address. The enhanced mode covers all previously
// written user data, and sanitize also data that is not allocated or has become inaccessible. Such an erase is no purge
// in the evidence. With agent_enable_ata_secure_erase off, and for disks behind SAS adapters, nothing is asked, and an
// overwrite is clear. No drive with these features was at hand, and QEMU has none. Tests compare the commands and
// replies with the tables of ACS-2 and ACS-4.
//
// # Drives behind other adapters
//
// Only drives of libata's drivers are sent ATA commands. SATA drives behind SAS and RAID adapters and USB bridges are
// overwritten, and their result says "overwrite". So does ironic-python-agent, if "smartctl -d ata" fails. The firmware
// between can abort a command that takes hours, and leave the drive locked, or return no registers
// (https://github.com/Seagate/openSeaChest/issues/229), so that success cannot be distinguished from failure. An
// overwrite does not reach the spare blocks of an SSD; for that, such a drive must be attached to an AHCI port.
package ata
