package bootfile

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"strconv"
	"strings"

	"github.com/klauspost/compress/gzip"
	"github.com/klauspost/compress/zstd"
)

// CheckInitrd returns an error for a file that is not a sequence of complete cpio archives, plain or in a compression
// that the kernel supports (Linux, Documentation/driver-api/early-userspace/buffer-format.rst), or that differs from
// the checksum next to it. The content of compressed archives is not checked, nor whether an archive is complete that
// is compressed with anything else than gzip and zstd.
func CheckInitrd(path string) error {
	f, err := os.Open(path)
	if err != nil {
		return fmt.Errorf("initrd: %w", err)
	}
	defer f.Close() //nolint:errcheck // only read
	if err := checkArchives(f); err != nil {
		return fmt.Errorf("initrd %s: %w", path, err)
	}
	return CheckSum(path)
}

// source is an initramfs that is read once.
type source struct {
	r      *bufio.Reader
	offset int64 // bytes that were read
}

// Read reads bytes.
func (s *source) Read(p []byte) (int, error) {
	n, err := s.r.Read(p)
	s.offset += int64(n)
	return n, err
}

// ReadByte reads a byte. Decompressors with this method read nothing behind the end of their archive.
func (s *source) ReadByte() (byte, error) {
	b, err := s.r.ReadByte()
	if err == nil {
		s.offset++
	}
	return b, err
}

// take reads size bytes. The end of the file is io.ErrUnexpectedEOF.
func (s *source) take(size int) ([]byte, error) {
	data := make([]byte, size)
	_, err := io.ReadFull(s, data)
	return data, unexpected(err)
}

// skip skips size bytes. The end of the file is io.ErrUnexpectedEOF.
func (s *source) skip(size int64) error {
	_, err := io.CopyN(io.Discard, s, size)
	return unexpected(err)
}

// align skips bytes up to a multiple of 4 from a place in the file.
func (s *source) align(start int64) error { return s.skip(-(s.offset - start) & 3) }

func unexpected(err error) error {
	if errors.Is(err, io.EOF) {
		return io.ErrUnexpectedEOF
	}
	return err
}

// archiveFormats are the formats of archives that the kernel unpacks. skip reads an archive to its end.
var archiveFormats = []struct {
	name, magic string
	skip        func(s *source) error
}{
	{"cpio", "070701", skipCPIO},
	{"cpio", "070702", skipCPIO},
	{"gzip", gzipMagic, skipGzip},
	{"bzip2", "BZh", skipRest},
	{"lzma", "\x5d\x00\x00", skipRest},
	{"xz", "\xfd7zXZ\x00", skipRest},
	{"lzo", "\x89LZO", skipRest},
	{"lz4", "\x02\x21\x4c\x18", skipRest}, // the kernel's old frame
	{"zstd", "\x28\xb5\x2f\xfd", skipZstd},
}

// maxMagic is the length of the longest magic in bytes.
const maxMagic = 6

// bootconfigEnd is the end of an initramfs that a boot configuration was appended to, which the kernel does not unpack
// (Linux, Documentation/admin-guide/bootconfig.rst).
const bootconfigEnd = "#BOOTCONFIG\n"

// checkArchives returns an error for an initramfs that the kernel does not unpack to its end. Archives begin at
// multiples of 4 bytes if they are not compressed; zeros precede them.
func checkArchives(r io.Reader) error {
	s := &source{r: bufio.NewReaderSize(r, 1<<16)}
	for count := 0; ; count++ {
		for {
			b, err := s.ReadByte()
			switch {
			case errors.Is(err, io.EOF) && count > 0:
				return nil
			case errors.Is(err, io.EOF) && s.offset == 0:
				return errors.New("is empty")
			case errors.Is(err, io.EOF):
				return errors.New("has only zeros, want a cpio archive")
			case err != nil:
				return err
			}
			if b != 0 {
				s.offset--
				if err := s.r.UnreadByte(); err != nil {
					return err
				}
				break
			}
		}
		if done, err := s.skipArchive(count == 0); done || err != nil {
			return err
		}
	}
}

// skipArchive reads an archive to its end. done reports whether nothing follows that the kernel unpacks.
func (s *source) skipArchive(first bool) (done bool, err error) {
	start := s.offset
	head, err := s.r.Peek(maxMagic)
	if err != nil && !errors.Is(err, io.EOF) {
		return false, err
	}
	for _, format := range archiveFormats {
		if !bytes.HasPrefix(head, []byte(format.magic)) {
			continue
		}
		if format.name == "cpio" && start%4 != 0 {
			return false, fmt.Errorf("cpio archive begins at byte %d, want a multiple of 4", start)
		}
		err := format.skip(s)
		if errors.Is(err, io.ErrUnexpectedEOF) {
			return false, fmt.Errorf("is truncated: ends at byte %d in the %s archive that begins at byte %d",
				s.offset, format.name, start)
		}
		if err != nil {
			return false, fmt.Errorf("%s archive at byte %d: %w", format.name, start, err)
		}
		return false, nil
	}
	if !first {
		if rest, err := io.ReadAll(s); err != nil || bytes.HasSuffix(rest, []byte(bootconfigEnd)) {
			return true, err
		}
	}
	return false, fmt.Errorf("has %q at byte %d, want a cpio archive, plain or compressed with gzip, bzip2, lzma, xz, "+
		"lzo, lz4 or zstd", head, start)
}

// skipCPIO reads an archive in the format newc.
func skipCPIO(s *source) error {
	const (
		headerSize = 110
		fileSize   = 54 // offset of the field, 8 hexadecimal digits
		nameSize   = 94
		maxName    = 1 << 16
	)
	start := s.offset
	for {
		at := s.offset
		header, err := s.take(headerSize)
		if err != nil {
			return err
		}
		if magic := string(header[:6]); magic != "070701" && magic != "070702" {
			return fmt.Errorf("header at byte %d begins with %q, want 070701", at, magic)
		}
		size, sizeErr := strconv.ParseUint(string(header[fileSize:fileSize+8]), 16, 32)
		length, lengthErr := strconv.ParseUint(string(header[nameSize:nameSize+8]), 16, 32)
		if err := errors.Join(sizeErr, lengthErr); err != nil || length > maxName {
			return fmt.Errorf("header at byte %d has the sizes %q and %q, want two numbers, the latter at most %x",
				at, header[fileSize:fileSize+8], header[nameSize:nameSize+8], maxName)
		}
		name, err := s.take(int(length))
		if err != nil {
			return err
		}
		if strings.TrimRight(string(name), "\x00") == "TRAILER!!!" {
			return nil
		}
		if err := s.align(start); err != nil {
			return err
		}
		if err := s.skip(int64(size)); err != nil {
			return err
		}
		if err := s.align(start); err != nil {
			return err
		}
	}
}

func skipGzip(s *source) error {
	z, err := gzip.NewReader(s)
	if err != nil {
		return unexpected(err)
	}
	z.Multistream(false)
	_, err = io.Copy(io.Discard, z)
	return err
}

// skipRest reads to the end of the file. Few use these formats for an initramfs, and their ends cannot be found without
// unpacking.
func skipRest(s *source) error {
	_, err := io.Copy(io.Discard, s)
	return err
}

// skipZstd reads a frame (RFC 8878, 3.1.1).
func skipZstd(s *source) error {
	head, err := s.r.Peek(zstd.HeaderMaxSize)
	if err != nil && !errors.Is(err, io.EOF) {
		return err
	}
	var frame zstd.Header
	if err := frame.Decode(head); err != nil {
		return unexpected(err)
	}
	if err := s.skip(int64(frame.HeaderSize)); err != nil {
		return err
	}
	for last := false; !last; {
		block, err := s.take(3)
		if err != nil {
			return err
		}
		header := uint32(block[0]) | uint32(block[1])<<8 | uint32(block[2])<<16
		last = header&1 == 1
		size := int64(header >> 3)
		switch header >> 1 & 3 {
		case 1:
			size = 1 // repeated
		case 3:
			return errors.New("block of a reserved type")
		}
		if err := s.skip(size); err != nil {
			return err
		}
	}
	if frame.HasCheckSum {
		return s.skip(4) // checksum
	}
	return nil
}
