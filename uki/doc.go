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
//
// # Assembled here, signed by a library
//
// Libraries in Go read PE files (debug/pe, saferwall/pe) or sign them (go-uefi, which the tests of boot entries use
// already); none adds sections. So package uki parses with debug/pe and adds the sections in 150 lines, and a test
// compares whole images with ukify's byte by byte. go-uefi computes the Authenticode digest and the signature; each
// signature is verified before it is written. Calling ukify was rejected: the operator's command would need Python and
// Debian. None of this is part of the ramdisk. The signed attributes contain the time, so that two signatures differ.
// Attributes are mandatory for content that is not plain data (RFC 2315, section 9.2). Digest and PCR values do not
// depend on them.
//
// # A signed image contains its own command line
//
// The agent must know which parameters were signed. /proc/cmdline does not say it: under Secure Boot, the stub ignores
// arguments, but appends an SMBIOS string, which a BIOS tool or the host of a virtual machine sets. The variable
// StubInfo of the stub says only that some stub has run. So the command line is in an archive of its own, before the
// initramfs. The signature covers it, it is unpacked first, even if memory is too small for the rest, and later
// archives of the stub write below /.extra only. If that file exists and the firmware's variable SecureBoot is 1, PID 1
// uses this command line and nothing of /proc/cmdline. A state that cannot be read counts as enabled.
//
// The kernel itself reads /proc/cmdline: rdinit=/bbin/gosh in the SMBIOS string would start a shell instead of PID 1.
// So .cmdline ends with "--". The kernel passes everything that follows to init, which ignores it, also where it reads
// /proc/cmdline itself: fips=0 there does not switch the mode off, and module parameters have no effect. Some early
// options of x86 are searched for in the whole line, nokaslr for example; none gives access.
package uki
