package unpack

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"runtime"

	"github.com/ulikunitz/xz/lzma"
)

const xzMagic = "\xfd7zXZ\x00"

// xzReader decompresses a file of the .xz format, version 1.2.1. The blocks must have LZMA2 as their only filter,
// which is the default of the xz tool. The checks of the blocks are skipped: the checksum of the image covers the
// whole file. The reader of the xz library is not used because it accepts dictionaries of any size.
type xzReader struct {
	source countingReader
	memory int64     // largest dictionary in bytes
	block  io.Reader // nil between blocks
	begin  int64     // offset in the source of the current block's data
	check  int64     // length of the check behind each block in bytes
	opened bool      // a stream has begun
}

func newXZReader(r io.Reader, memory int64) *xzReader {
	return &xzReader{source: countingReader{r: lzma.ByteReader(r)}, memory: memory}
}

func (x *xzReader) Read(p []byte) (int, error) {
	for {
		if x.block != nil {
			n, err := x.block.Read(p)
			if err == nil || n > 0 && err == io.EOF { //nolint:errorlint // the block ends by io.EOF itself
				return n, nil
			}
			if err != io.EOF { //nolint:errorlint // see above
				return n, err
			}
			if err := x.endBlock(); err != nil {
				return 0, err
			}
		}
		if err := x.next(); err != nil {
			return 0, err
		}
	}
}

// next starts the next block. It returns io.EOF if there is none.
func (x *xzReader) next() error {
	for {
		if !x.opened {
			if err := x.openStream(); err != nil {
				return err
			}
		}
		size, err := x.source.ReadByte()
		if err != nil {
			return truncated(err)
		}
		if size > 0 {
			header := make([]byte, int(size)*4+3) // all but its first byte
			if err := x.fill(header); err != nil {
				return err
			}
			return x.openBlock(header)
		}
		if err := x.endStream(); err != nil {
			return err
		}
	}
}

// openStream reads the header of a stream, after the zeros that may precede it.
func (x *xzReader) openStream() error {
	first := x.source.n == 0
	header := make([]byte, 12)
	for {
		n, err := io.ReadFull(&x.source, header[:4])
		if n == 0 && err == io.EOF && !first { //nolint:errorlint // io.ReadFull returns it unwrapped
			return io.EOF
		}
		if err != nil {
			return truncated(err)
		}
		if first || binary.LittleEndian.Uint32(header) != 0 {
			break
		}
	}
	if err := x.fill(header[4:]); err != nil {
		return err
	}
	if string(header[:6]) != xzMagic || header[6] != 0 || header[7] > 15 {
		return errors.New("stream header: signature or flags are invalid")
	}
	x.opened, x.check = true, 0
	if id := header[7]; id > 0 {
		x.check = 4 << ((id - 1) / 3)
	}
	return nil
}

// openBlock parses the header of a block without its first byte.
func (x *xzReader) openBlock(header []byte) error {
	flags, rest := header[0], header[1:len(header)-4]
	if flags&0x3f != 0 {
		return errors.New("it is packed with more than one filter, only LZMA2 alone is supported")
	}
	for _, has := range []byte{0x40, 0x80} { // the sizes of the block, compressed and uncompressed
		if flags&has == 0 {
			continue
		}
		_, n := binary.Uvarint(rest)
		if n <= 0 {
			return errors.New("a block header is invalid")
		}
		rest = rest[n:]
	}
	const lzma2 = 0x21
	if len(rest) < 3 || rest[0] != lzma2 || rest[1] != 1 {
		return errors.New("it is packed with another filter than LZMA2")
	}
	dictionary, err := lzma.DecodeDictCap(rest[2])
	if err != nil {
		return err
	}
	if dictionary > x.memory {
		return fmt.Errorf("its dictionary has %d bytes, at most %d are supported here: "+
			"compress it by xz -8 or less", dictionary, x.memory)
	}
	if x.begin > 0 {
		runtime.GC() // frees the dictionary of the last block before the next one is allocated
	}
	x.begin = x.source.n
	x.block, err = lzma.Reader2Config{DictCap: max(int(dictionary), lzma.MinDictCap)}.NewReader2(&x.source)
	return err
}

// endBlock skips the padding and the check of a block.
func (x *xzReader) endBlock() error {
	x.block = nil
	return x.fill(make([]byte, x.padding(x.source.n-x.begin)+x.check))
}

func (x *xzReader) padding(n int64) int64 { return -n & 3 }

// endStream skips the index, without its first byte, and the footer of a stream.
func (x *xzReader) endStream() error {
	x.opened = false
	begin := x.source.n - 1
	records, err := binary.ReadUvarint(&x.source)
	for range 2 * records {
		if err != nil {
			break
		}
		_, err = binary.ReadUvarint(&x.source)
	}
	if err != nil {
		return truncated(err)
	}
	const sum, footer = 4, 12
	return x.fill(make([]byte, x.padding(x.source.n-begin)+sum+footer))
}

// fill reads all of p.
func (x *xzReader) fill(p []byte) error {
	_, err := io.ReadFull(&x.source, p)
	return truncated(err)
}

// truncated turns io.EOF into io.ErrUnexpectedEOF.
func truncated(err error) error {
	if err == io.EOF { //nolint:errorlint // from the source itself
		return io.ErrUnexpectedEOF
	}
	return err
}
