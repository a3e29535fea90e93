// Package ibft reads the iSCSI Boot Firmware Table (Microsoft, iBFT 1.03), in which firmware describes the target that
// it booted from. It reads the table from sysfs, where the kernel's module iscsi_ibft finds it in ACPI or in the memory
// below 1 MiB, checks its length and checksum, and exports its fields as text. Fields of firmware are validated: what
// cannot be used is reported, and the rest is returned.
//
// # The kernel reads the table
//
// The table is read from the files of the module iscsi_ibft, not by code of our own: iPXE and BIOS put it into the
// memory below 1 MiB, which user space cannot read under Secure Boot. The module checks length and checksum. On a node
// without the table, this module is loaded in vain, and nothing waits.
package ibft
