package image

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"

	"ironroot/storage/image/qcow2"
)

// spoolMemory is how many bytes of a spool are in memory before the disk has to take more.
const spoolMemory = 8 << 20

// errOnePass says that an image cannot be written while it passes for the first time.
var errOnePass = errors.New("the image cannot be written in one pass")

// spool keeps those parts of a file of which nobody knows yet where they belong: in memory first, then on the disk that
// the image is for, beyond the end of the image and before the place of a backup partition table.
type spool struct {
	target *target
	memory []byte
	room   int    // of memory
	tail   extent // of the disk; len is what of it is used
	end    int64  // of the disk's room
	parts  []spooled
}

// spooled is a part of the file in a spool.
type spooled struct {
	extent
	at int64 // in the spool, memory and disk counted as one
}

func newSpool(t *target, imageSize int64, memory int) *spool {
	return &spool{target: t, room: memory, tail: extent{off: roundUp(imageSize, directAlign)}, end: t.size - endSize}
}

// add keeps what lies at off in the file, behind all that was added before.
func (s *spool) add(off int64, data []byte) error {
	at := int64(len(s.memory)) + s.tail.len
	if n := len(s.parts); n > 0 && s.parts[n-1].end() == off {
		s.parts[n-1].len += int64(len(data))
	} else if n >= qcow2.MaxRuns {
		return fmt.Errorf("%w: more than %d pieces of it came before the tables that tell their places", errOnePass, n)
	} else {
		s.parts = append(s.parts, spooled{extent{off, int64(len(data))}, at})
	}
	n := min(len(data), s.room-len(s.memory))
	s.memory = append(s.memory, data[:n]...)
	if data = data[n:]; len(data) == 0 {
		return nil
	}
	if s.tail.end()+int64(len(data)) > s.end {
		return fmt.Errorf("%w: %d bytes of it came before the tables that tell their places, "+
			"and the disk %s of %d bytes has no space for them beyond the end of the image", errOnePass, at+int64(n+len(data)), s.target.path, s.target.size)
	}
	if err := s.target.cache(data, s.tail.end()); err != nil {
		return err
	}
	s.tail.len += int64(len(data))
	return nil
}

// read fills p with what lies at off in the file, and returns how much of it from the beginning was there.
func (s *spool) read(p []byte, off int64) (n int, err error) {
	i, _ := slices.BinarySearchFunc(s.parts, off, func(part spooled, off int64) int { return cmp.Compare(part.end(), off+1) })
	if i == len(s.parts) || s.parts[i].off > off {
		return 0, nil
	}
	part := s.parts[i]
	p, at := p[:min(int64(len(p)), part.end()-off)], part.at+off-part.off
	if at < int64(len(s.memory)) {
		n = copy(p, s.memory[at:])
	}
	if rest := p[n:]; len(rest) > 0 {
		disk := s.tail.off + at + int64(n) - int64(len(s.memory))
		if _, err := s.target.file.ReadAt(rest, disk); err != nil {
			return n, s.target.fail("read back", disk, err)
		}
	}
	return len(p), nil
}

// clear leaves nothing on the disk: the file can hold what the image's disk does not.
func (s *spool) clear(ctx context.Context) error {
	used := s.tail
	if used.len == 0 {
		return nil // and it may lie beyond the end of the disk
	}
	s.tail.len = 0
	return s.target.zero(ctx, used)
}
