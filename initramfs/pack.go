package initramfs

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"os"
	"path"
	"path/filepath"
	"runtime"
	"slices"
	"sort"

	"ironroot/uinit/kmod"

	"github.com/klauspost/compress/zstd"
	"github.com/u-root/mkuimage/cpio"
	"golang.org/x/sync/errgroup"
)

// packVersion names how modules are compressed; results of another version are not taken from the cache.
const packVersion = "zstd-klauspost-1.20.3-best"

// packModules returns the modules compressed one by one. That takes a while, so results stay in the cache, by content.
func (b *builder) packModules(ctx context.Context, files []*moduleFile) ([][]byte, error) {
	cache := filepath.Join(b.CacheDir, "modules", packVersion)
	if err := os.MkdirAll(cache, 0o755); err != nil {
		return nil, err
	}
	packed := make([][]byte, len(files))
	group, ctx := errgroup.WithContext(ctx)
	group.SetLimit(runtime.GOMAXPROCS(0))
	for i, f := range files {
		group.Go(func() error {
			if err := ctx.Err(); err != nil {
				return err
			}
			image, err := f.image()
			if err != nil {
				return err
			}
			packed[i], err = packCached(cache, image)
			return err
		})
	}
	return packed, group.Wait()
}

func packCached(cache string, image []byte) ([]byte, error) {
	sum := sha256.Sum256(image)
	name := filepath.Join(cache, hex.EncodeToString(sum[:])+".zst")
	if data, err := os.ReadFile(name); err == nil && unpacksTo(data, image) {
		return data, nil
	}
	data := pack(image)
	return data, writeFile(name, data)
}

// unpacksTo tells whether what the cache holds is whole: a power cut may have left a file without its content.
func unpacksTo(packed, image []byte) bool {
	decoder, err := zstd.NewReader(nil, zstd.WithDecoderConcurrency(1), zstd.WithDecoderMaxMemory(maxModule))
	if err != nil {
		return false
	}
	defer decoder.Close()
	got, err := decoder.DecodeAll(packed, make([]byte, 0, len(image)))
	return err == nil && bytes.Equal(got, image)
}

// writeFile writes beside and renames: a file under its final name is whole.
func writeFile(name string, data []byte) error {
	f, err := os.CreateTemp(filepath.Dir(name), ".new-")
	if err != nil {
		return err
	}
	defer os.Remove(f.Name()) //nolint:errcheck // gone after the renaming
	if _, err := f.Write(data); err != nil {
		return errors.Join(err, f.Close())
	}
	if err := errors.Join(f.Chmod(0o644), f.Close()); err != nil {
		return err
	}
	return os.Rename(f.Name(), name)
}

// firmware returns those files below the folder of firmware that the modules name, and notes which are missing.
func (b *builder) firmware(index []*kmod.Module) ([]cpio.Record, error) {
	var names []string
	for _, m := range index {
		names = append(names, m.Firmware...)
	}
	sort.Strings(names)
	names = slices.Compact(names)
	if b.Firmware == "" {
		b.report.MissingFirmware = names
		return nil, nil
	}
	var records []cpio.Record
	dirs := map[string]bool{}
	for _, name := range names {
		data, err := os.ReadFile(filepath.Join(b.Firmware, filepath.Clean("/"+name)))
		if errors.Is(err, os.ErrNotExist) {
			b.report.MissingFirmware = append(b.report.MissingFirmware, name)
			continue
		}
		if err != nil {
			return nil, err
		}
		guest := path.Join("lib/firmware", path.Clean("/"+name))
		records = append(records, parents(guest, dirs)...)
		records = append(records, cpio.StaticFile(guest, string(data), 0o644))
		b.countPacked("firmware", 1, int64(len(data)), int64(len(data)))
	}
	return records, nil
}

// parents returns the folders above name that are not in dirs yet.
func parents(name string, dirs map[string]bool) []cpio.Record {
	var records []cpio.Record
	for dir := path.Dir(name); dir != "." && !dirs[dir]; dir = path.Dir(dir) {
		dirs[dir] = true
		records = append([]cpio.Record{cpio.Directory(dir, 0o755)}, records...)
	}
	return records
}
