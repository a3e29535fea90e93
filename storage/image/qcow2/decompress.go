package qcow2

import (
	"bytes"
	"fmt"
	"io"

	"github.com/klauspost/compress/flate"
	"github.com/klauspost/compress/zstd"
)

// maxWindow is the largest zstd window that is accepted; QEMU's do not exceed the cluster.
const maxWindow = 8 << 20

// Decompressor unpacks clusters. It is not safe for concurrent use.
type Decompressor struct {
	method Compression
	input  bytes.Reader
	zlib   io.ReadCloser
	zstd   *zstd.Decoder
}

// NewDecompressor returns a Decompressor for the clusters of an image with header h. Close it after use.
func NewDecompressor(h *Header) (*Decompressor, error) {
	d := &Decompressor{method: h.Compression}
	if d.method == Zlib {
		d.zlib = flate.NewReader(&d.input)
		return d, nil
	}
	var err error
	d.zstd, err = zstd.NewReader(nil, zstd.WithDecoderConcurrency(1), zstd.WithDecoderLowmem(true), zstd.WithDecoderMaxWindow(maxWindow))
	return d, err
}

// Cluster unpacks packed, which may have padding behind its data, to fill cluster.
func (d *Decompressor) Cluster(cluster, packed []byte) error {
	d.input.Reset(packed)
	var from io.Reader
	if d.method == Zlib {
		if err := d.zlib.(flate.Resetter).Reset(&d.input, nil); err != nil {
			return err
		}
		from = d.zlib
	} else {
		if err := d.zstd.Reset(&d.input); err != nil {
			return err
		}
		from = d.zstd
	}
	if n, err := io.ReadFull(from, cluster); err != nil {
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
