// Package block lists and identifies the machine's block devices. It reads disks and partitions from sysfs without
// udev, waits for them with kernel uevents, and issues the ioctls that flush a device or reread its partition table.
//
// It computes serial numbers, WWNs and paths from sysfs alone, by the rules of udev's scsi_id, ata_id and path_id:
// SCSI vital product data pages 0x80 and 0x83 (SPC-4, 7.8), NVMe serial and wwid, the virtio serial attribute. Device
// nodes must exist in devtmpfs. Multipath maps and md arrays are listed, but not assembled: see package multipath.
package block
