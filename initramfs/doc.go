// Package initramfs builds the ramdisk: a kernel, and an initramfs that contains the agent as /init, kernel modules,
// firmware, certificate authorities and, for debugging, u-root's shell.
//
// The initramfs is a sequence of two cpio archives in the "newc" format, see the kernel's
// Documentation/driver-api/early-userspace/buffer-format.rst. The first contains the programs and is compressed with
// Zstandard. The second is not compressed, because each of its modules and firmware files is. Its last file is a
// marker. If PID 1 does not find the marker, the kernel ran out of memory while unpacking. The same inputs give the
// same bytes.
//
// The package has more than twenty files, one for each part of an image: a part is found, packed and described there.
// The parts fill the same archive and share the options of the build.
//
// # Kernel and compression
//
// The kernel is Debian's: it receives security fixes, has drivers for nearly every server, and is signed for Secure
// Boot. "ironroot image --kernel FILE --modules DIR" uses any other.
//
// The kernel unpacks the initramfs into memory before a program runs. Four hundred modules have 93 MiB unpacked and 17
// MiB as separate xz files, and a machine uses thirty of them. So each one is stored compressed. Debian compresses its
// modules with xz, and its kernel decompresses them itself (finit_module with MODULE_INIT_COMPRESSED_FILE): they are
// stored as in the package. Modules of other kernels are compressed with Zstandard, and PID 1 decompresses them.
// Zstandard would be faster for all of them, but needs 5 MiB more. Firmware is compressed in the best format that the
// kernel's configuration allows: Zstandard, xz, or none. The kernel decompresses a file when a driver requests it.
//
// # Shell
//
// With UEFI, the memory contains the initramfs twice when the kernel starts, and the root file system can fill half of
// the rest. So the shell is a delta of /init: 1.3 instead of 5.2 MiB, and the initramfs has the same size, because it
// was compressed together with /init before. In its place is a script whose interpreter is /init, which replaces the
// script by the program when a command is started for the first time. This takes 40 ms. PID 1 could unpack it at each
// start, but most machines run no command, and would have less memory.
//
// # Inlining
//
// The programs of the ramdisk are built without inlining, except for the runtime and the packages that process the
// bytes of an image. This made the initramfs an eighth smaller when it was introduced (5.5 instead of 6.3 MB without
// modules). The cost for the start and the protocol, which have no loops over so many bytes, was not measured. Of the
// packages of crypto, ciphers and hashes are inlined, and TLS and certificates are not, which saves 47 KiB. Go's
// benchmark of TLS 1.3 with records of full size, 64 MB, reached 216, 244 and 216 MB/s before, and 171, 246 and 260
// MB/s after: the difference is smaller than the noise of that machine.
//
// # FIPS 140-3 mode is off by default
//
// The cryptographic module is version v1.0.0, the newest one that Go lists as certified, instead of the one in the
// standard library. Programs built with it would be in FIPS 140-3 mode by default, which tests the module at each start
// and has fewer algorithms. A directive in the main package changes the default.
//
// # Public authorities
//
// Images of ironic-python-agent have the certificate authorities of their distribution, so that images and registries
// on public servers are verified without configuration. The image has the authorities of Debian's package
// ca-certificates, joined in the order of update-ca-certificates: 0.12 MiB, because random bytes do not compress. The
// module golang.org/x/crypto/x509roots/fallback was rejected: it is for programs without such a file, updates only with
// the Go modules, and the bill of materials would not name its authorities as a package of Debian. --ca-file replaces
// them and does not add to them, like cafile on the node: a site that trusts only its own authorities can say so, and
// one that trusts both names two files.
//
// # Custom managers are built in a workspace
//
// --manager could also put the operator's package into this module by an overlay, or generate a go.mod with replace
// directives. The first excludes packages with modules of their own, and with embedded files; the second must merge the
// requirements and checksums of all modules. A Go workspace does this itself: it takes the newest version that a module
// requires, verifies modules that no go.sum names, and honours the replace directives of each module. The workspace is
// generated in a temporary directory, so neither the operator's files nor this repository change. -trimpath removes its
// path from the program. /init names its managers in a literal list: a registry that packages fill in init functions
// would hide which managers an image has, and in which order.
package initramfs
