package initramfs

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"os"
	"path/filepath"
	"runtime"

	"ironroot/uinit/kmod"

	"github.com/klauspost/compress/zstd"
	"golang.org/x/sync/errgroup"
)

// packVersion names how modules are compressed; results of another version are not taken from the cache.
const packVersion = "zstd-klauspost-1.20.3-best"

// packed is a module as the archive stores it.
type packed struct {
	data   []byte
	suffix string
}

// packModules returns the modules compressed one by one. Compressing takes a while, so results stay in the cache, by
// content.
func (b *builder) packModules(ctx context.Context, kernel Kernel, files []*moduleFile) ([]packed, error) {
	cache := filepath.Join(b.CacheDir, "modules", packVersion)
	if err := os.MkdirAll(cache, 0o755); err != nil {
		return nil, err
	}
	has, err := kernel.configured()
	if err != nil {
		return nil, err
	}
	// Files that the kernel unpacks itself are stored as the distribution compressed them.
	unpacksXZ := has("CONFIG_MODULE_DECOMPRESS") && has("CONFIG_MODULE_COMPRESS_XZ")
	all := make([]packed, len(files))
	group, ctx := errgroup.WithContext(ctx)
	group.SetLimit(runtime.GOMAXPROCS(0))
	for i, f := range files {
		group.Go(func() error {
			if err := ctx.Err(); err != nil {
				return err
			}
			if unpacksXZ && filepath.Ext(f.path) == ".xz" {
				data, err := os.ReadFile(f.path)
				all[i] = packed{data, kmod.SuffixXZ}
				return err
			}
			image, err := f.image()
			if err != nil {
				return err
			}
			data, err := packCached(cache, image)
			all[i] = packed{data, kmod.Suffix}
			return err
		})
	}
	return all, group.Wait()
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
