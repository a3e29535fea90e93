// Package unpack reads files that are compressed as a whole by gzip (RFC 1952), zstd (RFC 8878), xz, bzip2 or lz4.
//
// Concatenated files unpack to the concatenation of their contents, as they do by the tools of these formats. Zeros may
// follow a file of gzip, bzip2 or xz; for xz, their number must be a multiple of four. The memory of a reader is
// limited: files that need a larger window or dictionary are rejected. So are files of the formats that zstd had before
// version 0.8, and of "lz4 -l", whose blocks the library does not read if they are incompressible.
//
// # Which files are decompressed
//
// The format is detected by content. An image that is declared as raw is copied byte for byte, because raw means that
// no format is interpreted. An image without a declared format is inspected, and can be compressed.
//
// A file chooses its window or dictionary, and with it the memory that the machine needs. 32 MiB are always permitted:
// "xz -8", "zstd -19". More is permitted up to a quarter of the available memory, because images are published that
// were compressed by "xz -9" (64 MiB). A zstd decoder needs twice its window, and the library decodes windows of at
// most 512 MiB, so "zstd --long=31" is rejected on every machine. Files can begin with frames that are skipped, as
// files of pzstd do.
//
// xz files have a container reader of our own, which decompresses the blocks by ulikunitz/xz. The library's own reader
// allocates as much memory as a file demands, whatever limit it is given: 256 MiB for a file of 60 bytes
// (TestLibraryDictionary). It would add 52 KiB to the program, 15 KiB of them compressed. In one run, the reader here
// took 0.98 of its processor time; it does not verify the checks of blocks, which the checksum of the image replaces.
package unpack
