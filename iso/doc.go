// Package iso builds a bootable image from a Linux kernel and an initramfs. The image boots as a CD-ROM, as virtual
// media and from a USB stick, with BIOS and with UEFI firmware, also with Secure Boot enabled. Images for arm64 boot
// with UEFI only.
//
// The image is an ISO 9660 file system (ECMA-119, level 1 names with Rock Ridge) with an El Torito catalog of two
// entries: ISOLINUX for BIOS, and an EFI system partition with Debian's signed shim and GRUB for UEFI. Its unused
// first sectors contain a master boot record, whose code finds ISOLINUX and whose partition table contains the EFI
// system partition, so that the image boots from a disk too.
//
// Secure Boot covers the loaders and the kernel: Microsoft signed shim, Debian signed GRUB, and GRUB starts only a
// kernel that Debian signed. The initramfs and the command line are not signed.
//
// An image can contain a unified kernel image instead of kernel, initramfs and boot loaders. Only UEFI firmware boots
// it. Secure Boot then covers all of it, if the firmware has the key.
//
// The boot loaders are from Debian's packages, which are fetched and unpacked but not installed. Equal inputs give
// equal bytes. Limits: x86-64 and arm64, boot loaders below 30 MiB, no Joliet names.
//
// # The EFI system partition is FAT16 with short names
//
// Package fat writes it with clusters of one sector, for which few MiB are enough, and with names of eight and three
// characters without long ones, as other tools write them. OVMF boots it. FAT12 and long names were not tried: firmware
// that cannot read them would only be found in the field.
package iso
