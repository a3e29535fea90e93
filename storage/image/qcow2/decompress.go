package qcow2

import (
	"bytes"
	"fmt"
	"io"

	"github.com/klauspost/compress/zstd"

	"ironroot/storage/image/inflate"
)

// maxWindow is the largest zstd window that is accepted; QEMU's do not exceed the cluster.
const maxWindow = 8 << 20

// Decompressor unpacks clusters. It is not safe for concurrent use.
type Decompressor struct {
	zlib  *inflate.Inflater // nil where clusters are packed by zstd
	zstd  *zstd.Decoder
	input bytes.Reader
}

// NewDecompressor returns a Decompressor for the clusters of an image with header h. Close it after use.
func NewDecompressor(h *Header) (*Decompressor, error) {
	if h.Compression == Zlib {
		return &Decompressor{zlib: new(inflate.Inflater)}, nil
	}
	d, err := zstd.NewReader(nil, zstd.WithDecoderConcurrency(1), zstd.WithDecoderLowmem(true), zstd.WithDecoderMaxWindow(maxWindow))
	return &Decompressor{zstd: d}, err
}

// Cluster unpacks packed, which may have padding behind its data, to fill cluster.
func (d *Decompressor) Cluster(cluster, packed []byte) error {
	var n int
	var err error
	if d.zlib != nil {
		n, err = d.zlib.Fill(cluster, packed)
	} else {
		d.input.Reset(packed)
		if err := d.zstd.Reset(&d.input); err != nil {
			return err
		}
		n, err = io.ReadFull(d.zstd, cluster)
	}
	if err != nil {
		return fmt.Errorf("unpacked %d bytes, want %d: %w", n, len(cluster), err)
	}
	return nil
}

// Close frees what the Decompressor holds.
func (d *Decompressor) Close() {
	if d.zstd != nil {
		d.zstd.Close()
	}
}
