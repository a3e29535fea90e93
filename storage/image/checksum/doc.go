// Package checksum verifies files by their published digests, which stand alone or in a checksum file.
//
// # The strongest digest of a checksum file counts
//
// Such files often list MD5 or SHA-1 first, for old clients. All digests of a file come from the same server, so the
// longest one is used, even if os_hash_algo names a weaker algorithm. Of digests with the same length, the one of that
// algorithm is used. A file with shorter ones only is refused: whoever names SHA-512 does not get MD5.
//
// A file whose only line for the image has a directory is usually made with "sha256sum */*", so its line counts. Lines
// of the image with different digests of one algorithm are left from different versions or directories. To take the
// first one is a guess that fails after the whole transfer, so the file is refused before it.
package checksum
