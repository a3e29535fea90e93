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

// decompressor decompresses clusters. It is not safe for concurrent use.
type decompressor struct {
	zlib  *inflate.Pair // nil if the clusters are compressed by zstd
	zstd  *zstd.Decoder
	input bytes.Reader
}

// newDecompressor returns a decompressor for the clusters of an image with header h. Close it after use.
func newDecompressor(h *Header) (*decompressor, error) {
	if h.Compression == Zlib {
		return &decompressor{zlib: new(inflate.Pair)}, nil
	}
	d, err := zstd.NewReader(nil,
		zstd.WithDecoderConcurrency(1), zstd.WithDecoderLowmem(true), zstd.WithDecoderMaxWindow(maxWindow))
	return &decompressor{zstd: d}, err
}

// cluster decompresses packed, which can have padding behind its data, until cluster is full.
func (d *decompressor) cluster(cluster, packed []byte) error {
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

// two is cluster for two clusters, and faster than two calls.
func (d *decompressor) two(clusters, packed [2][]byte) (errs [2]error) {
	if d.zlib == nil {
		return [2]error{d.cluster(clusters[0], packed[0]), d.cluster(clusters[1], packed[1])}
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

// close frees the memory of the decompressor.
func (d *decompressor) close() {
	if d.zstd != nil {
		d.zstd.Close()
	}
}
