// Package removable reads files from virtual CDs and floppies that a BMC attached, without mounting them: ISO 9660
// (with Rock Ridge) and FAT file systems on whole optical drives, on whole USB disks below 4 GiB that are removable or
// write-protected, and on RAM disks to which the firmware has loaded a medium.
//
// Partitions and devices made of other devices are never read: a previous owner of a disk could have labelled it, and
// would then configure the machine. Absolute paths and paths with ".." are rejected, and links are not followed.
//
// # Media are recognized by properties that a tenant cannot write
//
// ironic-python-agent takes any USB disk below 4 GiB for virtual media. A disk that is built in can be a USB disk, too,
// and its tenant can give it the label of the parameters floppy: it would then configure the next boot, and no erase
// would touch it. A USB disk must therefore be removable or write-protected, which its content cannot change. This does
// not apply to optical drives. A USB disk of QEMU needs removable=on. That BMCs (iDRAC, iLO, AMI's, OpenBMC) present
// floppies and USB keys as removable was not measured. The recorded machines have one USB disk, of an HPE ProLiant
// DL360 Gen10: its built-in SD card reader, which is empty, and removable. USB sticks that stay in the machine and
// cards of such readers therefore count as media, too, and a tenant can write to them. The erase therefore leaves only
// floppies of at most 64 MiB untouched, and names them in its result; Ironic makes floppies of 100 KiB. Remove USB
// sticks from nodes that boot from virtual media.
package removable
