// Package smbios parses the SMBIOS tables that the kernel exports below /sys/firmware/dmi/tables, and describes BIOS,
// processors and memory (types 0, 4, 16 and 17) in the format of dmidecode.
//
// The structures follow the System Management BIOS Reference Specification (DSP0134) 3.5. Later additions to them are
// read as far as the specification of today knows their place; other types are split into fields and strings only.
//
// # The library of u-root was rejected
//
// u-root's pkg/smbios splits the tables and describes structures much as dmidecode does, and 55,000 fuzzed tables
// caused no panic. It does not cover what is read here; library_linux_test.go shows each reason.
//
//   - Tables: it returns nothing of a table with one broken structure, and rejects a table whose end lacks its two
//     zeros or is not the last byte, entry points of SMBIOS 2.0, and those with a wrong checksum. The parser here
//     returns the structures that precede the fault, and trusts the entry point because the kernel has checked it.
//   - Descriptions: the collector dmi reports the output of dmidecode, which parsers on Ironic's side expect, with a
//     dot for each byte that is not printable. Inventory and other collectors omit these bytes, as lshw does. The
//     library does not know memory arrays, speeds above 65 GT/s and modules of unknown size; it describes a module in
//     empty slots, and fields behind the end of a structure. Of the 109 structures of BIOS, processors and memory of
//     six recorded machines, it describes 53 otherwise than dmidecode; of 206 structures with rare contents, 168.
//   - Size: to split tables, it adds 24 KiB to the programs of the ramdisk, 6 KiB of them compressed; with its
//     descriptions 104 KiB and 24 KiB. The descriptions here take 92 KiB and 30 KiB.
package smbios
