// Package nfit parses the NVDIMM Firmware Interface Table (ACPI 6.5, 5.2.25) as far as it describes ranges of memory.
//
// Firmware describes persistent memory in it, and the RAM disks that it creates (UEFI 2.10, 13.6): the image that UEFI
// HTTP boot has downloaded.
//
// # RAM disks of the firmware
//
// UEFI HTTP boot of an ISO (boot interface redfish-https of Ironic) leaves the ISO in memory, and the kernel shows it
// as a block device of persistent memory, /dev/pmem0. An NVDIMM looks the same, and a former tenant could have given it
// the label of the ISO. The NFIT distinguishes them: each range of memory has a type, and only ranges of a virtual CD
// or virtual disk in volatile memory (UEFI 2.10, 13.6) exist since the start of the machine. Address and size of the
// device must be equal to the range. Such a device is a medium like a CD of the BMC, and no disk: it is neither listed
// nor erased. All other persistent memory is a disk and is erased, also if the table cannot be read. Persistent virtual
// disks, which the UEFI specification knows too, are disks. The table does not say which of several RAM disks was
// booted from; firmware creates others only for a user of its setup program.
//
// On a QEMU machine with an NVDIMM, Linux does not show the RAM disk of OVMF, and the ramdisk has only the kernel's
// command line. Without an NVDIMM, Linux shows the RAM disk. A RAM disk that is smaller than its ISO 9660 volume was
// truncated on its way, and is an error even if all files that are looked for are there: the ramdisk that was booted
// comes from the same download.
package nfit
