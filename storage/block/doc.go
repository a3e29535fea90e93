// Package block lists and identifies the machine's block devices. It reads disks and partitions from sysfs without
// udev, waits for them with kernel uevents, and issues the ioctls that flush a device or reread its partition table.
//
// It computes serial numbers, WWNs and paths from sysfs alone, by the rules of udev's scsi_id, ata_id and path_id:
// SCSI vital product data pages 0x80 and 0x83 (SPC-4, 7.8), NVMe serial and wwid, the virtio serial attribute. Device
// nodes must exist in devtmpfs. Multipath maps and md arrays are listed, but not assembled: see package multipath.
//
// The package has more than twenty files, one for each source of facts. All of them fill the fields of [Device], so
// that packages of their own would only pass these fields to each other.
//
// # Controllers without a driver
//
// The disks of a storage controller without a driver are in no list, so that an erase of all listed disks would succeed
// although data of a tenant remains. Reasons are a module that the ramdisk lacks, and a driver that failed: the kernel
// removes the link to the driver, and for NVMe the controller, if firmware does not answer. So the package also lists
// PCI functions of base class 01h without a driver. Package generic fails the erase steps for them.
//
// The ramdisk has libata's drivers of IDE controllers, except the drivers for ISA, PC Card and CardBus and for chipsets
// that only exist with 32-bit processors. An IDE controller therefore lacks a driver only if none supports it or its
// driver failed. The alternate status register of each channel shows whether a drive answers: the bus floats without a
// drive (FFh, or 7Fh where the host pulls down line 7). Reading it changes nothing, unlike the status register, which
// ends a pending interrupt, and unlike the kernel's probe, which writes to the drives' registers and resets them. The
// status 00h fails the step, because it can come from an empty channel, from a packet device, or from drive 0 if only
// drive 1 is there. The kernel knows the ports, also in compatibility mode, and offers the ports of one controller as
// files in sysfs. /dev/port was rejected: it has all ports of the machine, and the kernel closes it with Secure Boot. A
// bridge that forwards no I/O, a state of low power, or a controller that does not answer would look like a floating
// bus, and fail the step. A controller whose I/O ports are switched off stays so: the kernel's generic driver does not
// switch it on either, because firmware switches off controllers that the board does not use. Loading that driver for
// all IDE controllers (all_generic_ide=1) was rejected, because it also takes controllers of other drivers.
//
// The list of PCI IDs in nomedia.go is literal, because each entry lets a step succeed: IDE redirection of Intel's
// management engine, the management functions of Broadcom's PCI Express switches, and virtio-fs. It applies to the
// classes IDE and other mass storage only. Fibre Channel adapters have another base class (0Ch), and connect to a
// storage network.
//
// # Disks of a network
//
// A disk is connected by a network if one of these is true:
//
//   - the class of its SCSI host, or a session above the disk: iSCSI by software and by adapters, Fibre Channel, FCoE.
//   - the driver of its SCSI host: SRP.
//   - the transport of a controller of the namespace is any but pcie, apple-nvme and loop: NVMe over TCP, RDMA, Fibre
//     Channel.
//   - its kernel name: nbd, Ceph's rbd, DRBD, ATA over Ethernet.
//   - a device below it: multipath maps and arrays of such disks.
//
// Disks that a RAID controller or a hypervisor reaches over a network look like local ones.
package block
