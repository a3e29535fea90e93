package squashfs

import (
	"bytes"
	"fmt"
	"io"
	"runtime"

	"github.com/klauspost/compress/zstd"
	"golang.org/x/sync/errgroup"
)

// packer compresses blocks.
type packer struct{ encoder *zstd.Encoder }

func newPacker() (*packer, error) {
	encoder, err := zstd.NewWriter(nil, zstd.WithEncoderLevel(zstd.SpeedBestCompression),
		zstd.WithEncoderConcurrency(runtime.GOMAXPROCS(0)), zstd.WithWindowSize(blockSize),
		zstd.WithSingleSegment(true), zstd.WithEncoderCRC(false))
	if err != nil {
		return nil, err
	}
	return &packer{encoder}, nil
}

func (p *packer) close() { _ = p.encoder.Close() } // there is no output stream

// data returns a stored block of data and its size field.
func (p *packer) data(raw []byte) ([]byte, uint32) {
	packed := p.encoder.EncodeAll(raw, nil)
	if len(packed) >= len(raw) {
		return raw, uint32(len(raw)) | uncompressed
	}
	return packed, uint32(len(packed))
}

// metadata returns a stored block of metadata with its header.
func (p *packer) metadata(raw []byte) []byte {
	const plain = 0x8000
	var f fields
	if packed := p.encoder.EncodeAll(raw, nil); len(packed) < len(raw) {
		f.u16(uint16(len(packed)))
		return append(f, packed...)
	}
	f.u16(uint16(len(raw)) | plain)
	return append(f, raw...)
}

// metadata is a table of metadata blocks.
type metadata struct {
	packer *packer
	stored bytes.Buffer
	raw    []byte // of the block that is not complete
}

// position returns the position of what is written next.
func (m *metadata) position() reference {
	return reference{uint32(m.stored.Len()), uint16(len(m.raw))}
}

func (m *metadata) write(data []byte) {
	m.raw = append(m.raw, data...)
	for len(m.raw) >= metadataSize {
		m.stored.Write(m.packer.metadata(m.raw[:metadataSize]))
		m.raw = append([]byte(nil), m.raw[metadataSize:]...)
	}
}

// finish returns the whole table.
func (m *metadata) finish() []byte {
	if len(m.raw) > 0 {
		m.stored.Write(m.packer.metadata(m.raw))
		m.raw = nil
	}
	return m.stored.Bytes()
}

// part is a part of a file that belongs into a block.
type part struct {
	file *inode
	from int64
	size int64
}

// unit is a block: a part of a file, or a fragment block with the content of small files.
type unit struct {
	parts    []part
	fragment bool
	stored   []byte
	size     uint32 // size field
}

// units divides the content of all files into blocks.
func (t *tree) units() []*unit {
	var list []*unit
	var small *unit
	var filled int64
	for _, n := range t.inodes {
		if !n.Mode.IsRegular() || n.Size == 0 {
			continue
		}
		if n.Size >= blockSize {
			for from := int64(0); from < n.Size; from += blockSize {
				list = append(list, &unit{parts: []part{{n, from, min(blockSize, n.Size-from)}}})
			}
			continue
		}
		if small == nil || filled+n.Size > blockSize {
			small, filled = &unit{fragment: true}, 0
			list = append(list, small)
		}
		n.offset = uint32(filled)
		small.parts = append(small.parts, part{n, 0, n.Size})
		filled += n.Size
	}
	return list
}

// writeData writes the content of all files and returns the table of fragment blocks.
func (t *tree) writeData() (fields, error) {
	units := t.units()
	var group errgroup.Group
	group.SetLimit(runtime.GOMAXPROCS(0))
	for _, u := range units {
		group.Go(func() error {
			raw, err := u.read()
			if err == nil {
				u.stored, u.size = t.packer.data(raw)
			}
			return err
		})
	}
	if err := group.Wait(); err != nil {
		return nil, err
	}
	var fragments fields
	for _, u := range units {
		at := uint64(t.image0.Len())
		t.image0.Write(u.stored)
		u.stored = nil
		if u.fragment {
			for _, p := range u.parts {
				p.file.fragment = uint32(len(fragments) / 16)
			}
			fragments.u64(at)
			fragments.u32(u.size, 0)
			continue
		}
		n := u.parts[0].file
		if u.parts[0].from == 0 {
			n.start = at
		}
		n.blocks = append(n.blocks, u.size)
	}
	return fragments, nil
}

// read returns the content of the block.
func (u *unit) read() ([]byte, error) {
	var raw []byte
	for _, p := range u.parts {
		data := make([]byte, p.size)
		if err := p.read(data); err != nil {
			return nil, fmt.Errorf("%s: %w", p.file.Path, err)
		}
		raw = append(raw, data...)
	}
	return raw, nil
}

func (p part) read(data []byte) error {
	f, err := p.file.Content.Open()
	if err != nil {
		return err
	}
	defer f.Close() //nolint:errcheck // only read
	n, err := f.ReadAt(data, p.from)
	if n == len(data) {
		return nil
	}
	if err == io.EOF { //nolint:errorlint // as io.ReaderAt returns it
		err = io.ErrUnexpectedEOF
	}
	return fmt.Errorf("read %d bytes at %d, got %d: %w", len(data), p.from, n, err)
}
