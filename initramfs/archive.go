package initramfs

import (
	"bytes"
	"fmt"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"strings"

	"github.com/klauspost/compress/zstd"
	"github.com/u-root/mkuimage/cpio"
)

// windowSize is the window, in bytes, of archives that the kernel unpacks. It contains the agent. The kernel's decoder
// accepts up to 128 MiB, and allocates the window or the unpacked size, whichever is less.
const windowSize = 32 << 20

// pack compresses data with Zstandard at the highest level.
func pack(data []byte) []byte {
	encoder, err := zstd.NewWriter(nil, zstd.WithEncoderLevel(zstd.SpeedBestCompression),
		zstd.WithEncoderConcurrency(1), zstd.WithWindowSize(windowSize), zstd.WithEncoderCRC(false))
	if err != nil {
		panic(err) // the options are constants
	}
	defer encoder.Close() //nolint:errcheck // there is no output stream
	return encoder.EncodeAll(data, nil)
}

// align pads data with zeros to a multiple of 4 bytes, where an uncompressed archive can begin. The kernel skips zeros
// between archives.
func align(data []byte) []byte {
	for len(data)%4 != 0 {
		data = append(data, 0)
	}
	return data
}

// archiveOf returns a cpio archive with records in the given order. It does not depend on time or machine.
func archiveOf(records []cpio.Record) ([]byte, error) {
	format, err := cpio.Format("newc")
	if err != nil {
		return nil, err
	}
	var out bytes.Buffer
	// Every record gets a unique inode number: the kernel makes files with equal numbers hard links.
	w := format.Writer(&out)
	for i, r := range records {
		r = cpio.MakeReproducible(r)
		r.Ino = uint64(i + 1)
		if err := w.WriteRecord(r); err != nil {
			return nil, fmt.Errorf("archive: %s: %w", r.Name, err)
		}
	}
	if err := cpio.WriteTrailer(w); err != nil {
		return nil, fmt.Errorf("archive: %w", err)
	}
	return align(out.Bytes()), nil
}

func sizeOf(records []cpio.Record) int64 {
	var size int64
	for _, r := range records {
		size += int64(r.FileSize)
	}
	return size
}

// pagesOf returns the memory, in bytes, that the files of records occupy when they are unpacked.
func pagesOf(records []cpio.Record) int64 {
	const page = 4096
	var size int64
	for _, r := range records {
		if r.Mode&cpio.S_IFMT == cpio.S_IFREG {
			size += (int64(r.FileSize) + page - 1) / page * page
		}
	}
	return size
}

// extraFiles returns the records of a HOST:GUEST pair, with the directories above GUEST. HOST can be a directory. A
// file with a private key for evidence is an error: everyone who can read the image could sign evidence with it.
func extraFiles(pair string) ([]cpio.Record, error) {
	host, guest, found := strings.Cut(pair, ":")
	guest = strings.TrimPrefix(path.Clean("/"+guest), "/")
	if !found || host == "" || guest == "" {
		return nil, fmt.Errorf("extra file %q, want HOST:GUEST", pair)
	}
	var records []cpio.Record
	for dir := path.Dir(guest); dir != "."; dir = path.Dir(dir) {
		records = append([]cpio.Record{cpio.Directory(dir, 0o755)}, records...)
	}
	err := filepath.WalkDir(host, func(name string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		below, err := filepath.Rel(host, name)
		if err != nil {
			return err
		}
		record, err := fileRecord(name, path.Join(guest, below), d)
		if err == nil {
			records = append(records, record)
		}
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("extra file %s: %w", pair, err)
	}
	return records, nil
}

func fileRecord(name, guest string, d fs.DirEntry) (cpio.Record, error) {
	info, err := d.Info()
	if err != nil {
		return cpio.Record{}, err
	}
	switch {
	case d.IsDir():
		return cpio.Directory(guest, 0o755), nil
	case d.Type()&fs.ModeSymlink != 0:
		target, err := os.Readlink(name)
		return cpio.Symlink(guest, target), err
	case d.Type().IsRegular():
		data, err := os.ReadFile(name)
		if err != nil {
			return cpio.Record{}, err
		}
		if err := checkNoEvidenceKey(name, data); err != nil {
			return cpio.Record{}, err
		}
		return cpio.StaticFile(guest, string(data), uint64(info.Mode().Perm())), nil
	default:
		return cpio.Record{}, fmt.Errorf("%s is neither a file nor a directory nor a link", name)
	}
}
