// Package qcow2 reads qcow2 images and writes the disk in them while their file arrives.
//
// The format is described in docs/interop/qcow2.rst of QEMU. Versions 2 and 3 are supported, with zlib and zstd
// clusters and extended L2 entries. Encryption and everything that refers to another file (backing files, external
// data files) are refused; internal snapshots are ignored. Images are untrusted: every number is checked before it is
// used, and maxRuns and the limit of the L1 table bound the memory.
//
// A Layout says where the content lies. FetchLayout reads the tables first, by range requests. If the server ignores
// ranges, StreamLayout begins with the tables at the beginning of the file, and the others are read as they arrive. A
// Placer then writes each cluster as it arrives. Clusters that arrive before the table that names them are spooled, in
// memory and beyond the end of the image on the disk, and placed at the end.
//
// # One download, almost always
//
// qemu-img writes each table before the clusters that it names, so most images can be placed as they arrive. The space
// of the spool on the disk is zeroed afterwards, because a file can contain clusters that are not part of the disk but
// only of an internal snapshot. Without space for the spool the file is fetched again, its tables first, which always
// works.
package qcow2
