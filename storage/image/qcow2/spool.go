package qcow2

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"

	"ironroot/storage/image/device"
)

// SpoolMemory is the number of bytes that a spool keeps in memory before it uses the disk.
const SpoolMemory = 8 << 20

// ErrOnePass means that an image cannot be written while its file arrives for the first time.
var ErrOnePass = errors.New("the image cannot be written in one pass")

// spool keeps the parts of a file that no table has named yet: in memory first, then on the disk that the image is
// written to, beyond the end of the image and before the backup partition table.
type spool struct {
	disk        *device.Disk
	memory      []byte
	memoryLimit int
	tail        Range // of the disk; Len is used
	tailLimit   int64 // end of the space on the disk
	parts       []spooledPart
}

// spooledPart is a part of the file in a spool.
type spooledPart struct {
	Range
	at int64 // in the spool, memory and disk counted as one
}

func newSpool(t *device.Disk, imageSize int64, memoryLimit int) *spool {
	off := (imageSize + device.Align - 1) / device.Align * device.Align
	return &spool{disk: t, memoryLimit: memoryLimit, tail: Range{Off: off}, tailLimit: t.Size - device.EndSize}
}

// add keeps what lies at off in the file, behind all that was added before.
func (s *spool) add(off int64, data []byte) error {
	at := int64(len(s.memory)) + s.tail.Len
	if n := len(s.parts); n > 0 && s.parts[n-1].end() == off {
		s.parts[n-1].Len += int64(len(data))
	} else if n >= maxRuns {
		return tooManyPieces(n)
	} else {
		s.parts = append(s.parts, spooledPart{Range{off, int64(len(data))}, at})
	}
	n := min(len(data), s.memoryLimit-len(s.memory))
	s.memory = append(s.memory, data[:n]...)
	if data = data[n:]; len(data) == 0 {
		return nil
	}
	if s.tail.end()+int64(len(data)) > s.tailLimit {
		return fmt.Errorf("%w: %d bytes of it precede the tables that name them, "+
			"and the disk %s of %d bytes has no space for them beyond the end of the image",
			ErrOnePass, at+int64(n+len(data)), s.disk.Path, s.disk.Size)
	}
	if err := s.disk.WriteCached(data, s.tail.end()); err != nil {
		return err
	}
	s.tail.Len += int64(len(data))
	return nil
}

// tooManyPieces returns the error of a file with more than n pieces before their tables.
func tooManyPieces(n int) error {
	return fmt.Errorf("%w: more than %d pieces of it precede the tables that name them", ErrOnePass, n)
}

// read fills p with what lies at off in the file, and returns how many bytes of it, from the beginning, were there.
func (s *spool) read(p []byte, off int64) (n int, err error) {
	i, _ := slices.BinarySearchFunc(s.parts, off, func(part spooledPart, off int64) int {
		return cmp.Compare(part.end(), off+1)
	})
	if i == len(s.parts) || s.parts[i].Off > off {
		return 0, nil
	}
	part := s.parts[i]
	p, at := p[:min(int64(len(p)), part.end()-off)], part.at+off-part.Off
	if at < int64(len(s.memory)) {
		n = copy(p, s.memory[at:])
	}
	if rest := p[n:]; len(rest) > 0 {
		if err := s.disk.Read(rest, s.tail.Off+at+int64(n)-int64(len(s.memory))); err != nil {
			return n, err
		}
	}
	return len(p), nil
}

// clear zeroes what the spool used of the disk: the file can contain data that the image's disk does not.
func (s *spool) clear(ctx context.Context) error {
	used := s.tail
	if used.Len == 0 {
		return nil // and it may lie beyond the end of the disk
	}
	s.tail.Len = 0
	return s.disk.Zero(ctx, used.Off, used.Len)
}
