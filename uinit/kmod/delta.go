package kmod

import (
	"crypto/sha256"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/klauspost/compress/zstd"

	"ironroot/internal/newfile"
)

// FirmwareDir is the directory in which the kernel looks for firmware.
const FirmwareDir = "/lib/firmware"

// Suffixes of stored firmware files' names.
const (
	SuffixZstd  = ".zst"   // unpacked by the kernel, as is ".xz"
	SuffixDelta = ".delta" // restored by this package
)

// deltaID is the ID of the dictionary of a delta. Values below 32768 are reserved (RFC 8878, 3.1.1.1.3).
const deltaID = 1 << 15

// Delta is a firmware file that is compressed with the content of another one as its dictionary, because the two have
// much in common. The names are the ones that drivers request, below FirmwareDir. The shell is stored in the same way:
// see layout.ShellDelta.
type Delta struct{ File, Base string }

// deltaHeader precedes the compressed data of a delta. Its hashes detect that an appended archive has replaced the
// base, with which the data would be garbage.
type deltaHeader struct{ base, data [sha256.Size]byte }

const deltaHeaderSize = 2 * sha256.Size

// PackDelta compresses data with base as the dictionary, at the highest level.
func PackDelta(base, data []byte, window int) ([]byte, error) {
	encoder, err := zstd.NewWriter(nil, zstd.WithEncoderLevel(zstd.SpeedBestCompression),
		zstd.WithEncoderConcurrency(1), zstd.WithWindowSize(window), zstd.WithEncoderCRC(false),
		zstd.WithEncoderDictRaw(deltaID, base))
	if err != nil {
		return nil, err
	}
	defer encoder.Close() //nolint:errcheck // there is no output stream
	h := deltaHeader{sha256.Sum256(base), sha256.Sum256(data)}
	return encoder.EncodeAll(data, slices.Concat(h.base[:], h.data[:])), nil
}

// UnpackDelta returns the data of a delta. A base or data with another hash than in the delta is an error.
func UnpackDelta(base, delta []byte) ([]byte, error) {
	if len(delta) < deltaHeaderSize {
		return nil, fmt.Errorf("delta of %d bytes, want at least %d", len(delta), deltaHeaderSize)
	}
	want := deltaHeader{[sha256.Size]byte(delta), [sha256.Size]byte(delta[sha256.Size:])}
	if got := sha256.Sum256(base); got != want.base {
		return nil, fmt.Errorf("base has SHA-256 %x, want %x", got, want.base)
	}
	decoder, err := zstd.NewReader(nil, zstd.WithDecoderConcurrency(1), zstd.WithDecoderLowmem(true),
		zstd.WithDecoderMaxMemory(maxModuleSize), zstd.WithDecoderDictRaw(deltaID, base))
	if err != nil {
		return nil, err
	}
	defer decoder.Close()
	data, err := decoder.DecodeAll(delta[deltaHeaderSize:], nil)
	if err != nil {
		return nil, err
	}
	if got := sha256.Sum256(data); got != want.data {
		return nil, fmt.Errorf("data has SHA-256 %x, want %x", got, want.data)
	}
	return data, nil
}

// searched returns the names under which the kernel looks for a firmware file (fw_path and _request_firmware in
// drivers/base/firmware_loader/main.c). An uncompressed file in any directory precedes all compressed ones.
func (l *Loader) searched(name string) []string {
	dirs := []string{
		filepath.Join(l.o.Firmware, "updates", filepath.Base(l.o.Dir)), filepath.Join(l.o.Firmware, "updates"),
		filepath.Join(l.o.Firmware, filepath.Base(l.o.Dir)), l.o.Firmware,
	}
	for _, option := range l.o.Params.options["firmware_class"] {
		if dir, found := strings.CutPrefix(option, "path="); found {
			dirs = append(dirs, dir)
		}
	}
	var files []string
	for _, dir := range dirs {
		for _, suffix := range []string{"", SuffixZstd, ".xz"} {
			files = append(files, filepath.Join(dir, filepath.FromSlash(name))+suffix)
		}
	}
	return files
}

// restore writes a firmware file that is stored as a delta to where the kernel looks for it. It does nothing if the
// kernel finds a file of this name without it: one of an operator, or one that was restored before.
func (l *Loader) restore(d Delta) error {
	path := func(name string) string { return filepath.Join(l.o.Firmware, filepath.FromSlash(name)) }
	for _, file := range l.searched(d.File) {
		if _, err := os.Stat(file); !errors.Is(err, fs.ErrNotExist) {
			return err
		}
	}
	packed, err := os.ReadFile(path(d.Base) + SuffixZstd)
	if err != nil {
		return err
	}
	base, err := l.decoder.DecodeAll(packed, nil)
	if err != nil {
		return fmt.Errorf("%s: %w", d.Base, err)
	}
	delta, err := os.ReadFile(path(d.File) + SuffixDelta)
	if err != nil {
		return err
	}
	data, err := UnpackDelta(base, delta)
	if err != nil {
		return fmt.Errorf("%s with base %s: %w", d.File, d.Base, err)
	}
	// Another process can load the module at the same time, and must not see a part of the file.
	return newfile.Write(path(d.File), data)
}
