// Package iso builds one bootable image out of any x86-64 Linux kernel and initramfs. The same file boots as a CD-ROM
// (also by virtual media) and from a USB stick, by BIOS and by UEFI firmware, also with Secure Boot switched on.
//
// The image is an ISO 9660 file system (ECMA-119, level 1 names with Rock Ridge) with an El Torito catalog of two
// entries: ISOLINUX for BIOS, and an EFI system partition with Debian's signed shim and GRUB for UEFI. In its unused
// first sectors lies a master boot record whose code finds ISOLINUX and whose partition table names the EFI system
// partition, which is what makes it a stick.
//
// Secure Boot holds as far as the kernel does: shim and GRUB carry Microsoft's and Debian's signatures, GRUB starts
// only a kernel signed by Debian, and the initramfs and command line are not signed at all.
//
// The boot loaders come out of Debian's packages, which are fetched and unpacked but never installed. Equal inputs give
// equal bytes. Limits: no arm64, an EFI system partition below 32 MiB, no Joliet names.
package iso
