package qcow2

import (
	"bytes"
	"fmt"
	"io"

	"github.com/klauspost/compress/zstd"

	"ironroot/storage/image/inflate"
)

// maxWindow is the largest accepted zstd window in bytes. The windows of QEMU are not larger than a cluster.
const maxWindow = 8 << 20

// Decompressor unpacks clusters. It is not safe for concurrent use.
type Decompressor struct {
	zlib  *inflate.Pair // nil where clusters are packed by zstd
	zstd  *zstd.Decoder
	input bytes.Reader
}

// NewDecompressor returns a Decompressor for the clusters of an image with header h. Close it after use.
func NewDecompressor(h *Header) (*Decompressor, error) {
	if h.Compression == Zlib {
		return &Decompressor{zlib: new(inflate.Pair)}, nil
	}
	d, err := zstd.NewReader(nil, zstd.WithDecoderConcurrency(1), zstd.WithDecoderLowmem(true), zstd.WithDecoderMaxWindow(maxWindow))
	return &Decompressor{zstd: d}, err
}

// Cluster unpacks packed, which may have padding behind its data, to fill cluster.
func (d *Decompressor) Cluster(cluster, packed []byte) error {
	if d.zlib != nil {
		n, err := d.zlib.Fill(cluster, packed)
		return unfilled(n, cluster, err)
	}
	d.input.Reset(packed)
	if err := d.zstd.Reset(&d.input); err != nil {
		return err
	}
	n, err := io.ReadFull(d.zstd, cluster)
	return unfilled(n, cluster, err)
}

// Two is Cluster for two clusters, and faster than twice one.
func (d *Decompressor) Two(clusters, packed [2][]byte) (errs [2]error) {
	if d.zlib == nil {
		return [2]error{d.Cluster(clusters[0], packed[0]), d.Cluster(clusters[1], packed[1])}
	}
	n, errs := d.zlib.FillTwo(clusters, packed)
	return [2]error{unfilled(n[0], clusters[0], errs[0]), unfilled(n[1], clusters[1], errs[1])}
}

// unfilled returns the error of a cluster of which n bytes were decompressed.
func unfilled(n int, cluster []byte, err error) error {
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
