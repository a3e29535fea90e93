// Package layer unpacks the layers of container images (OCI image specification 1.1, "Image Layer Filesystem
// Changeset") into a directory. The layers are not trusted: nothing outside of the directory is changed, and the number
// and size of files are limited.
package layer

import (
	"archive/tar"
	"errors"
	"fmt"
	"io/fs"
	"strings"
)

// Limits limits what the layers of an image may unpack to.
type Limits struct {
	Entries    int   // files, directories and everything else in the archives
	Bytes      int64 // content of all files, with the holes of sparse files
	Attributes int64 // memory for all extended attributes, where file systems can have them, see attributeCost
	Names      int64 // memory for the names of one layer, see nameCost
}

// DefaultLimits are the limits for an image. Names of 128 MiB suffice for about a million files in a layer.
var DefaultLimits = Limits{Entries: 4 << 20, Bytes: 512 << 30, Attributes: 64 << 20, Names: 128 << 20}

// nameCost is the size of the unpacker's memory for a name besides its bytes.
const nameCost = 64

// attributeCost is the memory that a file system in memory needs for an extended attribute besides the bytes of name
// and value: 40 bytes (struct simple_xattr of Linux's xattr.h) and what its two allocations are rounded up by.
const attributeCost = 64

// Limits of the kernel for extended attributes (XATTR_NAME_MAX and XATTR_SIZE_MAX of include/uapi/linux/limits.h).
const (
	maxAttributeName  = 255
	maxAttributeValue = 64 << 10
)

// Names of whiteouts.
const (
	whiteout       = ".wh."
	opaqueWhiteout = ".wh..wh..opq"
	metadataPrefix = ".wh..wh." // other files of aufs
)

// maxPath is the longest name of a file in bytes; maxDepth is the largest number of directories in it.
const (
	maxPath  = 4096
	maxDepth = 512
)

var errOutside = errors.New("the name leads out of the root")

// cleanName returns the name of an archive's entry relative to the root, "." for the root.
func cleanName(name string) (string, error) {
	if len(name) > maxPath {
		return "", fmt.Errorf("the name has %d bytes, want at most %d", len(name), maxPath)
	}
	if strings.ContainsRune(name, 0) {
		return "", errors.New("the name contains a zero byte")
	}
	var parts []string
	for part := range strings.SplitSeq(name, "/") {
		switch part {
		case "", ".":
		case "..":
			return "", errOutside
		default:
			parts = append(parts, part)
		}
	}
	if len(parts) == 0 {
		return ".", nil
	}
	if len(parts) > maxDepth {
		return "", fmt.Errorf("the name has %d components, want at most %d", len(parts), maxDepth)
	}
	return strings.Join(parts, "/"), nil
}

// owner checks the owner and group of an entry.
func owner(h *tar.Header) error {
	const most = 1<<32 - 2 // (uid_t) -1 is not an owner
	if h.Uid < 0 || h.Gid < 0 || int64(h.Uid) > most || int64(h.Gid) > most {
		return fmt.Errorf("owner %d, group %d: want 0 to %d", h.Uid, h.Gid, int64(most))
	}
	return nil
}

// xattrs returns the extended attributes of an entry and the memory for them in bytes. Attributes of overlayfs are
// omitted: they would change how the directory is shown as part of an overlay.
func xattrs(h *tar.Header) (found map[string]string, size int64, err error) {
	const prefix = "SCHILY.xattr."
	found = make(map[string]string)
	for key, value := range h.PAXRecords {
		name, ok := strings.CutPrefix(key, prefix)
		overlay := strings.HasPrefix(name, "trusted.overlay.") || strings.HasPrefix(name, "user.overlay.")
		if !ok || name == "" || overlay {
			continue
		}
		if len(name) > maxAttributeName || len(value) > maxAttributeValue {
			return nil, 0, fmt.Errorf("attribute %.100q has a name of %d bytes and a value of %d, "+
				"want at most %d and %d", name, len(name), len(value), maxAttributeName, maxAttributeValue)
		}
		found[name] = value
		size += int64(len(name)+len(value)) + attributeCost
	}
	return found, size, nil
}

// entryError names the entry of an error.
func entryError(h *tar.Header, err error) error {
	var path *fs.PathError
	if errors.As(err, &path) { // its path is a file descriptor's
		err = path.Err
	}
	return fmt.Errorf("unpack %.200q: %w", h.Name, err)
}
