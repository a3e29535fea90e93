package qemu

import (
	"bufio"
	"encoding/binary"
	"fmt"
	"io"
	"iter"
	"os"
)

// Write is one request of a guest to a disk that Disk.Log recorded: a write, or a flush of everything before it.
type Write struct {
	Offset int64  // bytes from the start of the disk
	Data   []byte // valid until the next request; nil is a flush
}

// The layout of the log is that of Linux's dm-log-writes (drivers/md/dm-log-writes.c): a superblock, then an entry a
// request, its data behind it; each of them begins at a sector.
const (
	logMagic  = 0x6a736677736872
	logFlush  = 1
	maxLogged = 64 << 20 // bytes of one request
)

// WriteLog reads the requests that a disk with Disk.Log completed, in the order of their completion. As QEMU keeps the
// number of requests up to date at flushes only, what came after the last flush is left out. QEMU before version 9 mixes
// up the log where a request to zero something is under way beside others. A discard is an error: what it leaves behind is
// not defined.
func WriteLog(path string) iter.Seq2[Write, error] {
	return func(yield func(Write, error) bool) {
		if err := readLog(path, func(w Write) bool { return yield(w, nil) }); err != nil {
			yield(Write{}, fmt.Errorf("log of writes %s: %w", path, err))
		}
	}
}

func readLog(path string, yield func(Write) bool) error {
	f, err := os.Open(path)
	if err != nil {
		return err
	}
	defer f.Close() //nolint:errcheck // only read
	in := bufio.NewReaderSize(f, 1<<20)
	sector := make([]byte, sectorSize)
	if _, err := io.ReadFull(in, sector); err != nil {
		return fmt.Errorf("superblock: %w", err)
	}
	magic, size := binary.LittleEndian.Uint64(sector), binary.LittleEndian.Uint32(sector[24:])
	if magic != logMagic || size != sectorSize {
		return fmt.Errorf("superblock: got magic %#x and sectors of %d bytes, want %#x and %d", magic, size, uint64(logMagic), sectorSize)
	}
	var data []byte
	for n := binary.LittleEndian.Uint64(sector[16:]); n > 0; n-- {
		if _, err := io.ReadFull(in, sector); err != nil {
			return fmt.Errorf("entry: %w", err)
		}
		w := Write{Offset: int64(binary.LittleEndian.Uint64(sector)) * sectorSize}
		length, flags := int64(binary.LittleEndian.Uint64(sector[8:]))*sectorSize, binary.LittleEndian.Uint64(sector[16:])
		if length < 0 || length > maxLogged || flags&^logFlush != 0 {
			return fmt.Errorf("entry: got %d bytes with flags %#x", length, flags)
		}
		if flags&logFlush == 0 {
			data = append(data[:0], make([]byte, length)...)
			if _, err := io.ReadFull(in, data); err != nil {
				return fmt.Errorf("data of an entry: %w", err)
			}
			w.Data = data
		}
		if !yield(w) {
			return nil
		}
	}
	return nil
}
