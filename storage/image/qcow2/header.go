package qcow2

import (
	"encoding/binary"
	"fmt"
)

// Magic is the signature at the beginning of every qcow2 file.
const Magic = "QFI\xfb"

const (
	headerV2 = 72
	headerV3 = 104

	minClusterBits, maxClusterBits = 9, 21
	minExtendedBits                = 14 // cluster bits with extended L2 entries

	subclusters = 32 // in a cluster with an extended L2 entry

	// maxL1 is the largest size of the L1 table in bytes. It limits the number of L2 tables that a reader must
	// remember. It allows disks of 16 GiB with clusters of 512 bytes, 1 TiB with 4 KiB, and 256 TiB with the usual 64
	// KiB.
	maxL1     = 4 << 20
	maxHeader = 1 << 20 // bytes of the header, of which the first 112 are read
)

// Incompatible features, by bit.
const (
	featureDirty       = 1 << 0 // refcounts may be wrong; reading does not need them
	featureCorrupt     = 1 << 1
	featureDataFile    = 1 << 2
	featureCompression = 1 << 3
	featureExtendedL2  = 1 << 4
	featuresKnown      = featureDirty | featureCorrupt | featureDataFile | featureCompression | featureExtendedL2
)

// Compression is the algorithm of compressed clusters.
type Compression uint8

// The values of the header's field compression_type.
const (
	Zlib Compression = 0 // raw deflate, without zlib's own header
	Zstd Compression = 1
)

// Error is the reason why an image is refused.
type Error struct {
	Reason string
	Unsafe bool // the image would put the node at risk, or has unknown features
}

func (e *Error) Error() string { return "qcow2 image: " + e.Reason }

func broken(format string, args ...any) error { return &Error{Reason: fmt.Sprintf(format, args...)} }

func refused(format string, args ...any) error {
	return &Error{Reason: fmt.Sprintf(format, args...), Unsafe: true}
}

// Header contains the fields of a header that a reader needs.
type Header struct {
	Version     uint32
	Size        int64 // of the guest's disk, bytes
	ClusterSize int64 // bytes, a power of two from 512 to 2 MiB
	L1Offset    int64
	L1Entries   int // as many as Size needs; the table in the file can be longer
	Compression Compression

	clusterBits uint
	extended    bool // L2 entries have a bitmap of the 32 parts of a cluster that have content
}

// ParseHeader parses a header. b is the beginning of the file: at least 112 bytes, or the whole file if it is shorter.
// Errors are *Error.
func ParseHeader(b []byte) (*Header, error) {
	if len(b) < headerV2 || string(b[:4]) != Magic {
		return nil, broken("no header found")
	}
	version := binary.BigEndian.Uint32(b[4:])
	if version != 2 && version != 3 {
		return nil, refused("got version %d, want 2 or 3", version)
	}
	h := &Header{Version: version}
	if err := h.checkReferences(b); err != nil {
		return nil, err
	}
	if version == 3 {
		if err := h.parseV3(b); err != nil {
			return nil, err
		}
	}
	return h, h.parseGeometry(b)
}

// checkReferences refuses an image that refers to another file, or is encrypted.
func (h *Header) checkReferences(b []byte) error {
	if binary.BigEndian.Uint64(b[8:]) != 0 || binary.BigEndian.Uint32(b[16:]) != 0 {
		return refused("it has a backing file")
	}
	if method := binary.BigEndian.Uint32(b[32:]); method != 0 {
		return broken("it is encrypted (method %d)", method)
	}
	return nil
}

func (h *Header) parseV3(b []byte) error {
	if len(b) < headerV3 {
		return broken("the header has %d bytes, want %d", len(b), headerV3)
	}
	features := binary.BigEndian.Uint64(b[72:])
	switch {
	case features&featureDataFile != 0:
		return refused("its data lies in an external file")
	case features&^featuresKnown != 0:
		return refused("unknown incompatible features %#x", features&^featuresKnown)
	case features&featureCorrupt != 0:
		return broken("it is marked as corrupt")
	}
	h.extended = features&featureExtendedL2 != 0
	length := binary.BigEndian.Uint32(b[100:])
	if length < headerV3 || length%8 != 0 || length > maxHeader {
		return broken("header length %d", length)
	}
	if length > headerV3 && len(b) > headerV3 {
		h.Compression = Compression(b[104])
	}
	if declared := features&featureCompression != 0; declared != (h.Compression != Zlib) || h.Compression > Zstd {
		return refused("compression type %d with incompatible features %#x", h.Compression, features)
	}
	return nil
}

func (h *Header) parseGeometry(b []byte) error {
	bits := binary.BigEndian.Uint32(b[20:])
	if bits < minClusterBits || bits > maxClusterBits {
		return broken("cluster bits: got %d, want %d to %d", bits, minClusterBits, maxClusterBits)
	}
	if h.extended && bits < minExtendedBits {
		return broken("cluster bits with extended L2 entries: got %d, want %d to %d",
			bits, minExtendedBits, maxClusterBits)
	}
	h.clusterBits, h.ClusterSize = uint(bits), 1<<bits
	size := binary.BigEndian.Uint64(b[24:])
	if size == 0 || size > 1<<56 {
		return broken("the size of its disk is %d bytes", size)
	}
	h.Size = int64(size)
	have := int64(binary.BigEndian.Uint32(b[36:]))
	need := (h.Size + h.tableSpan() - 1) / h.tableSpan()
	if have < need {
		return broken("the L1 table is too small: got %d entries, want %d", have, need)
	}
	if need*8 > maxL1 {
		return broken("the L1 table has %d bytes, at most %d are supported", need*8, maxL1)
	}
	h.L1Entries = int(need)
	offset := binary.BigEndian.Uint64(b[40:])
	if offset == 0 || offset > 1<<56 || offset%uint64(h.ClusterSize) != 0 {
		return broken("L1 table at byte %d", offset)
	}
	h.L1Offset = int64(offset)
	return nil
}

// tableSpan returns the number of bytes of the guest's disk that one L2 table describes. A table fills one cluster.
func (h *Header) tableSpan() int64 { return h.ClusterSize / h.entrySize() * h.ClusterSize }

// entrySize returns the length of an L2 entry in bytes.
func (h *Header) entrySize() int64 {
	if h.extended {
		return 16
	}
	return 8
}

// grain returns the length in bytes of the smallest uncompressed part of the disk that an L2 entry describes.
func (h *Header) grain() int64 {
	if h.extended {
		return h.ClusterSize / subclusters
	}
	return h.ClusterSize
}
