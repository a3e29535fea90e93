// Package iso builds a bootable ISO 9660 image (ECMA-119 with Rock Ridge) out of any Linux kernel and initramfs.
package iso
