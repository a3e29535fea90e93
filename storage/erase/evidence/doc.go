// Package evidence describes what the erase of a disk has done and what was verified afterwards: the record, its JSON,
// the places that are read back and the probability that they find remaining data, the sanitization category, and
// signatures.
//
// A record claims a category only if the rules of [Classify] allow it for the facts in the same record. [Parse]
// applies them again.
//
// The standards are NIST SP 800-88 Rev. 2, whose categories are clear and purge, and IEEE 2883-2022, which names the
// techniques of each interface for them.
//
// # Evidence claims too little rather than too much
//
// The category of a disk is computed from the facts in its record, by rules that "ironroot erase verify" applies again.
// Neither the code that erases nor the file can claim another one. Purge needs the drive's own report of the
// completion, samples that have changed, and a read-back. Three techniques are clear here and purge elsewhere:
//
//   - NVMe Format: IEEE 2883 leaves it to the maker whether it is a purge, and the drive does not report it.
//   - ATA enhanced erase of a drive that reports no rotation rate: an SSD need not erase blocks that it took out of
//     use.
//   - Any command to a device that is not known to be one drive: it can be a volume whose controller erases only the
//     part that it shows.
//
// Vendors, models and buses of virtual disks form no complete list. So a device is a drive only if its bus says so:
// SATA and IDE by libata, NVMe by PCI Express, SAS with an end device, MMC, USB and parallel SCSI; and if its name is
// not the name of a virtual disk.
//
// A key in the common image was rejected: every node and everyone who can download the image would have it. The
// signature has no certificate and no time stamp, because the ramdisk has no source of trust for either: the operator
// knows which key a node got. Evidence with an unknown key fails to verify, because anyone can make a key. A step does
// not fail because its evidence could not be posted or signed. The disk is erased; to fail would erase it again, for
// hours, because of a web server.
//
// # Places of a read-back
//
// 2 % in chunks of 1 MiB is a compromise. Smaller chunks would find small remnants more often (34 % instead of 4 % of
// remnants of 1 MiB, with chunks of 64 KiB), but a hard disk would spend sixteen times as long on seeking. The
// probability is stated for the places that were actually read and not for the average of all seeds: it is exact then,
// and whoever verifies the evidence computes it again from the seed.
package evidence
