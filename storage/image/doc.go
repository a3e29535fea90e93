// Package image writes an operating system image from an HTTP server to a block device while it arrives.
//
// Raw images are copied byte for byte. A qcow2 image is unpacked in the same single pass: its tables are fetched
// first, and each cluster is written at its guest offset when it arrives. If the server ignores ranges, the tables
// are read as they arrive, and what precedes the table that names it is spooled, in 8 MiB of memory and beyond the
// end of the image on the disk. The file is fetched again only if that space is too small or two tables name the same
// cluster. Raw images that are compressed as a whole are recognized by their first bytes, unless they are declared as
// raw, and decompressed while they arrive. The image needs no space: the heap grows by at most 40 MiB for a raw image
// and 64 MiB for any other, plus 24 bytes for each piece and about 100 for each table of a qcow2 image. The number of
// both is limited.
//
// A checksum is always that of the file on the server. A transfer resumes after a lost connection if the server
// supports ranges and identifies the version of its file.
//
// The promise to the caller is that a failure never leaves a disk that boots. The first MiB of the device and the place
// of its backup GPT are zeroed before the image is fetched; what the image has there is held back in memory and written
// last, after the length and the checksum of the source have held and everything else has reached the disk. An image that
// is refused at the first look, for its format, its tables or its size, costs the disk nothing.
//
// The package is independent of Ironic. Downloads are untrusted: every read of tables, checksum files and headers has
// a limit, and images that name other files are rejected. Errors do not quote what was downloaded.
package image
