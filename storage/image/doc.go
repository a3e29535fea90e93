// Package image writes an operating system image from an HTTP server to a block device while it arrives.
//
// An attempt writes the image once, from one server: it reads the header, which decides whether and how the image is
// written, and then the whole file. A writer makes attempts until one succeeds or another cannot help.
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
// A checksum always covers the file on the server. A transfer resumes after a lost connection if the server supports
// ranges and identifies the version of its file.
//
// A failure never leaves a disk that boots. The first MiB of the device and its end, the place of the backup GPT, are
// zeroed before the transfer. Their content is kept in memory and written last, after the length and the checksum of
// the file were verified and everything else has reached the disk. An image that is refused for its header, that is its
// format, its tables or its size, does not change the disk. Neither does an image for a whole disk without a boot
// sector, or with a GPT for another sector size, if Options.DiskSectorSize is set and there is no other server. Two
// signatures are at the end of a file: the footers of a fixed VHD and of some VMware images. They are read with the
// header if the server supports ranges. Otherwise, and in a compressed file, they are found when they have arrived.
//
// The parts are packages of their own: fetch downloads, checksum verifies, pipeline moves data through memory, unpack
// decompresses, qcow2 reads tables and places clusters, and device writes. This package has the table of formats, and
// connects the parts. Its files: image.go is the interface; writer.go makes attempts, attempt.go is one of them;
// raw.go, compressed.go and qcow2.go write the contents; format.go, formatchecks.go, vmdk.go and wholedisk.go decide
// what may be written; progress.go counts.
//
// The package is independent of Ironic. Downloads are untrusted: every read of tables, checksum files and headers has
// a limit, and images that name other files are rejected. Errors do not quote what was downloaded.
//
// # The disk is wiped before the first request
//
// An accepted deployment removes the old tenant's system in any case. If the disk were wiped only after the download
// has begun, the machine would still boot the old system when the image's server is down. Only an image that is
// rejected for its content (its format, its tables, a virtual size that does not fit) leaves the disk unchanged: if the
// format is not declared as raw or gpt, the image is inspected first.
//
// # Disk images of hypervisors are refused
//
// vdi, vhd, vhdx and vmdk are the formats of other hypervisors. Each needs a reader of its own for untrusted data, and
// one command converts an image for good. ironic-python-agent leaves them to qemu-img, which is not part of this
// ramdisk. An error that names the command is sent before the disk is changed. It is part of the refusal of a format
// that is not permitted, too: otherwise an operator would permit the format first, in vain.
//
// A fixed VHD is a raw image, followed by a footer of 512 bytes. ironic-python-agent and qemu-img look at the beginning
// only, so they take it for a raw or gpt image, and an image that is declared as vhd fails because its content is not.
// Copied as it is, the disk has the footer behind its content. Therefore an image is refused, with the command that
// converts it, if it ends with such a footer and is not declared as raw or gpt. One that is declared so is copied with
// its footer, because raw means that nothing is interpreted. If the server reports the length of the file and supports
// ranges, its last 1536 bytes are requested before the disk is wiped. A failed request for the end is no error,
// because a server that does not send the end on its own can still send the whole file. Two alternatives were rejected.
// To copy the image without its footer would write a format that is refused otherwise. To download the file twice, or
// to refuse servers without ranges, would cost all other images more than this one is worth.
//
// # An image that is no disk is refused before it is written
//
// A deployment fails if the disk has no partition after the image was written, as with ironic-python-agent. For most
// wrong images the first MiB shows that: an archive, a file that was declared as raw by mistake, the image of a
// partition without its kernel and ramdisk, a GPT for other sectors. They are refused while the former content of the
// disk is still there, with the same type of error, and a name that says what the image is. Only content that no
// firmware boots is refused: a beginning without the signature of a boot sector, or a protective MBR whose GPT is at
// the place of another sector size. Boot code without a partition and the boot sector of a file system are not,
// although the check after writing fails. An image that is declared as raw is checked in the response that is copied
// afterwards, so that the check costs no request. If the first server does not answer, the disk is wiped before the
// check, like before every other attempt. Without the size of the disk's sectors, and for images of partitions, nothing
// is checked.
package image
