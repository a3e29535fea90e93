package initramfs

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"os"
	"path/filepath"
	"runtime"

	"github.com/klauspost/compress/zstd"
	"golang.org/x/sync/errgroup"

	"ironroot/internal/newfile"
	"ironroot/uinit/kmod"
)

// packVersion identifies the compressor and its settings. Cached results of another version are not used.
const packVersion = "zstd-klauspost-1.20.3-best"

// packed is a module as the archive stores it.
type packed struct {
	data   []byte
	suffix string
}

// packModules compresses each module. The results are cached by content, because compression is slow.
func (b *builder) packModules(ctx context.Context, kernel Kernel, files []*Module) ([]packed, error) {
	cache := filepath.Join(b.CacheDir, "modules", packVersion)
	if err := os.MkdirAll(cache, 0o755); err != nil {
		return nil, err
	}
	has, err := kernel.configured()
	if err != nil {
		return nil, err
	}
	// Files that the kernel can decompress are stored as in the distribution's package.
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
	return data, newfile.Write(name, data)
}

// unpacksTo reports whether packed decompresses to image. A power cut can leave a file without content in the cache.
func unpacksTo(packed, image []byte) bool {
	decoder, err := zstd.NewReader(nil, zstd.WithDecoderConcurrency(1), zstd.WithDecoderMaxMemory(maxModule))
	if err != nil {
		return false
	}
	defer decoder.Close()
	got, err := decoder.DecodeAll(packed, make([]byte, 0, len(image)))
	return err == nil && bytes.Equal(got, image)
}
