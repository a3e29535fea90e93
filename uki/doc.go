// Package uki builds unified kernel images: one UEFI program that consists of systemd's stub, a Linux kernel, an
// initramfs and a kernel command line, and that has one signature for all of them (UAPI Group Specifications, UKI). It
// boots as a boot file of PXE and of UEFI HTTP boot, and from an EFI system partition.
//
// Under Secure Boot, the firmware starts such a program only if its signature was made with a key of the firmware's
// db variable, and only if not a single byte has changed since. The stub then ignores arguments of the firmware. It
// still appends what an SMBIOS string contains; the command line therefore ends with "--", behind which the kernel
// ignores parameters. The initramfs gets a first archive with the command line, from which PID 1 learns that the image
// is signed, and which parameters are: see package layout.
//
// Equal inputs give equal bytes, except for the time of signing. Limits: x86-64 and arm64; RSA keys; no profiles,
// device trees, splash images or signed PCR policies. The sections are those that ukify of systemd writes, in the same
// places.
package uki
