package qemu

import (
	"bufio"
	"encoding/binary"
	"fmt"
	"io"
	"iter"
	"os"
)

// Write is a guest request that Disk.Log recorded: a write, or a flush of all earlier writes.
type Write struct {
	Offset int64  // bytes from the start of the disk
	Data   []byte // valid until the next request; nil means flush
}

// The log has the layout of Linux's dm-log-writes (drivers/md/dm-log-writes.c): a superblock, then one entry per
// request, followed by its data. Each of them starts at a sector boundary.
const (
	logMagic  = 0x6a736677736872
	logFlush  = 1
	maxLogged = 64 << 20 // bytes of one request
)

// WriteLog returns the completed requests of a disk with Disk.Log in the order of their completion. QEMU updates the
// number of requests only at flushes, so requests after the last flush are missing. QEMU before version 9 corrupts
// the log if a request to write zeros runs concurrently with others. A discard is an error, because the content
// afterwards is undefined.
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
		return fmt.Errorf("superblock: got magic %#x and sectors of %d bytes, want %#x and %d",
			magic, size, uint64(logMagic), sectorSize)
	}
	var data []byte
	for n := binary.LittleEndian.Uint64(sector[16:]); n > 0; n-- {
		if _, err := io.ReadFull(in, sector); err != nil {
			return fmt.Errorf("entry: %w", err)
		}
		w := Write{Offset: int64(binary.LittleEndian.Uint64(sector)) * sectorSize}
		length := int64(binary.LittleEndian.Uint64(sector[8:])) * sectorSize
		flags := binary.LittleEndian.Uint64(sector[16:])
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
