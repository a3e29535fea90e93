// Package image writes an operating system image from an HTTP server to a block device while it arrives.
//
// Raw images are copied byte for byte. A qcow2 image is unpacked in the same single pass: its tables are fetched
// first, and each cluster is written at its guest offset when it arrives. If the server ignores ranges, the tables
// are read as they arrive, and what precedes the table that names it is spooled, in 8 MiB of memory and beyond the
// end of the image on the disk. The file is fetched again only if that space is too small or two tables name the same
// cluster. Raw images that are compressed as a whole are recognized by their first bytes, unless they are declared as
// raw, and decompressed while they arrive. The image needs no space: the heap grows by at most 40 MiB for a raw image
// and 64 MiB for any other, plus 24 bytes for each piece and about 100 for each table of a qcow2 image. The number of
// both is limited. A compressed image can need more if Options.UnpackMemory allows it.
//
// A checksum is always that of the file on the server. A transfer resumes after a lost connection if the server
// supports ranges and identifies the version of its file.
//
// A failure never leaves a disk that boots. The first MiB of the device and its end, the place of the backup GPT, are
// zeroed before the transfer. Their content is kept in memory and written last, after the length and the checksum of
// the file were verified and everything else has reached the disk. An image that is refused by the first probe, for
// its format, its tables or its size, does not change the disk. Neither does an image for a whole disk without a boot
// sector, or with a GPT for another sector size, if Options.DiskSectorSize is set and there is no other server. Two
// signatures are at the end of a file: the footers of a fixed VHD and of some VMware images. The probe reads them if
// the server supports ranges. Otherwise, and in a compressed file, they are found when they have arrived.
//
// The parts are packages of their own: fetch downloads, checksum verifies, pipeline moves data through memory, unpack
// decompresses, qcow2 reads tables and places clusters, and device writes. This package has the table of formats, and
// connects the parts.
//
// The package is independent of Ironic. Downloads are untrusted: every read of tables, checksum files and headers has
// a limit, and images that name other files are rejected. Errors do not quote what was downloaded.
package image
