//go:build linux

// Package bond creates bonds of links (the kernel's bonding driver) and moves links into them.
//
// # The primary member is set without the library
//
// The LinkModify of vishvananda/netlink always sends the name of the bond with the primary member. If the bond is up,
// Linux 6.1 sets the member and then returns EBUSY because of the name, so that a success looks like a failure; Linux
// 6.12 accepts the same request (tried with Debian's kernels 6.1.0-56 and 6.12.117). Without the name, both kernels set
// the member and report success. For VLANs and bonds the library adds 168 KiB to the unpacked ramdisk and 48 KiB to the
// initramfs.
package bond
