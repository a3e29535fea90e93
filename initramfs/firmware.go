package initramfs

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"

	"github.com/u-root/mkuimage/cpio"
	"github.com/ulikunitz/xz"

	"ironroot/initramfs/firmware"
	"ironroot/uinit/kmod"
)

// Missing is a firmware file that is not in the image.
type Missing struct {
	Name    string
	Modules []string // that request it
}

// compression is a format of compressed firmware files.
type compression struct {
	suffix string // of the file that the kernel looks for
}

// pack compresses a file.
func (c compression) pack(data []byte) ([]byte, error) {
	switch c.suffix {
	case kmod.SuffixZstd:
		return pack(data), nil
	case ".xz":
		return packXZ(data)
	default:
		return data, nil
	}
}

// firmwareCompression returns the best compression that the kernel can unpack.
func firmwareCompression(kernel Kernel) (compression, error) {
	has, err := kernel.configured()
	if err != nil {
		return compression{}, err
	}
	switch {
	case has("CONFIG_FW_LOADER_COMPRESS_ZSTD"):
		return compression{".zst"}, nil
	case has("CONFIG_FW_LOADER_COMPRESS_XZ"):
		return compression{".xz"}, nil
	default:
		return compression{}, nil
	}
}

// packXZ compresses data as the kernel's Documentation/staging/xz.rst requires: CRC32, and a dictionary that the
// kernel can allocate.
func packXZ(data []byte) ([]byte, error) {
	var out bytes.Buffer
	w, err := xz.WriterConfig{CheckSum: xz.CRC32, DictCap: 2 << 20}.NewWriter(&out)
	if err != nil {
		return nil, err
	}
	if _, err := w.Write(data); err != nil {
		return nil, err
	}
	if err := w.Close(); err != nil {
		return nil, err
	}
	return out.Bytes(), nil
}

// firmware returns the files that the modules request, and adds the deltas to the modules in index. Each other file is
// compressed on its own, because the kernel decompresses a file when a driver requests it.
func (b *builder) firmware(ctx context.Context, kernel Kernel, index []*kmod.Module) ([]cpio.Record, error) {
	if b.NoFirmware {
		return nil, nil
	}
	requests, only := map[string][]string{}, map[string]*kmod.Module{}
	for _, m := range index {
		for _, name := range firmware.Requests(m.Name, m.Firmware) {
			requests[name], only[name] = append(requests[name], m.Name), m
		}
	}
	if len(requests) == 0 {
		return nil, nil
	}
	tree, err := b.firmwareTree(ctx)
	if err != nil {
		return nil, err
	}
	compression, err := firmwareCompression(kernel)
	if err != nil {
		return nil, err
	}
	f := firmwareFiles{
		b: b, compression: compression, names: map[string]bool{}, dirs: map[string]bool{},
		bases: map[*kmod.Module][]base{},
	}
	var found []firmware.File
	for _, name := range sortedKeys(requests) {
		search := tree
		if firmware.Omitted(name) {
			search = tree[:len(tree)-1] // without Debian's packages
		}
		files, err := search.Find(name)
		if err != nil {
			return nil, err
		}
		if len(files) == 0 {
			b.report.MissingFirmware = append(b.report.MissingFirmware, Missing{name, requests[name]})
		}
		for _, file := range files {
			if file.Path == "" {
				delete(only, file.Target) // the link leads to a file that the kernel can read
			}
		}
		if len(requests[name]) > 1 {
			delete(only, name)
		}
		found = append(found, files...)
	}
	for _, file := range found {
		if err := f.add(file, only[file.Name]); err != nil {
			return nil, err
		}
	}
	return f.records, nil
}

// firmwareTree returns the operator's directory, if there is one, followed by the directory of Debian's packages.
func (b *builder) firmwareTree(ctx context.Context) (firmware.Tree, error) {
	var tree firmware.Tree
	if b.Firmware != "" {
		tree = append(tree, b.Firmware)
	}
	b.say("fetching firmware")
	fetched, err := firmware.Fetch(ctx, b.archive, b.CacheDir, b.Arch)
	if err != nil {
		return nil, fmt.Errorf("%w\n--no-firmware builds an image without firmware", err)
	}
	b.firmwareDebs, b.firmwareRoot = fetched.Debs, fetched.Root
	return append(tree, fetched.Dir), nil
}

// firmwareFiles collects the records of firmware files.
type firmwareFiles struct {
	b           *builder
	compression compression
	names, dirs map[string]bool
	records     []cpio.Record
	bases       map[*kmod.Module][]base // files that only one module requests
}

// base is a file that deltas can refer to.
type base struct {
	name string
	data []byte
}

// minDelta is the packed size of a file, in bytes, from which on it can become a delta.
const minDelta = 16 << 10

// delta returns the name of the base and the delta of a file that only one module requests, if that halves its size.
func (f *firmwareFiles) delta(m *kmod.Module, data, packed []byte) (name string, delta []byte, err error) {
	limit := len(packed) / 2
	for _, other := range f.bases[m] {
		one, err := kmod.PackDelta(other.data, data, windowSize)
		if err != nil {
			return "", nil, err
		}
		if len(one) < limit {
			name, delta, limit = other.name, one, len(one)
		}
	}
	return name, delta, nil
}

// add adds a file or link. only is the module that requests the file by its name, if it can be stored as a delta.
func (f *firmwareFiles) add(file firmware.File, only *kmod.Module) error {
	guest := path.Join("lib/firmware", file.Name) + f.compression.suffix
	if f.names[guest] {
		return nil
	}
	f.names[guest] = true
	f.records = append(f.records, parents(guest, f.dirs)...)
	if file.Path == "" {
		target, err := filepath.Rel(path.Dir(file.Name), file.Target)
		if err != nil {
			return err
		}
		f.records = append(f.records, cpio.Symlink(guest, target+f.compression.suffix))
		return nil
	}
	data, err := os.ReadFile(file.Path)
	if err != nil {
		return err
	}
	packed, err := f.b.packFirmware(f.compression, data)
	if err != nil {
		return fmt.Errorf("compress %s: %w", file.Path, err)
	}
	canBeDelta := only != nil && f.compression.suffix == kmod.SuffixZstd && len(packed) >= minDelta &&
		!strings.Contains(file.Name, " ") // the index cannot contain it
	if canBeDelta {
		name, delta, err := f.delta(only, data, packed)
		if err != nil {
			return fmt.Errorf("compress %s: %w", file.Path, err)
		}
		if name != "" {
			only.Deltas = append(only.Deltas, kmod.Delta{File: file.Name, Base: name})
			guest, packed = path.Join("lib/firmware", file.Name)+kmod.SuffixDelta, delta
		} else {
			f.bases[only] = append(f.bases[only], base{file.Name, data})
		}
	}
	f.records = append(f.records, cpio.StaticFile(guest, string(packed), 0o644))
	own := !strings.HasPrefix(file.Path, f.b.firmwareRoot+"/")
	f.b.note(guest, origin{file: file.Path, source: file.Name, own: own})
	f.b.countPacked("firmware", 1, int64(len(data)), int64(len(packed)))
	return nil
}

// packFirmware compresses a file. Zstandard files are cached by content.
func (b *builder) packFirmware(c compression, data []byte) ([]byte, error) {
	if c.suffix != ".zst" {
		return c.pack(data)
	}
	cache := filepath.Join(b.CacheDir, "modules", packVersion)
	if err := os.MkdirAll(cache, 0o755); err != nil {
		return nil, err
	}
	return packCached(cache, data)
}

func sortedKeys(m map[string][]string) []string {
	keys := make([]string, 0, len(m))
	for key := range m {
		keys = append(keys, key)
	}
	slices.Sort(keys)
	return keys
}

// parents returns the directories above name that are not in dirs yet.
func parents(name string, dirs map[string]bool) []cpio.Record {
	var records []cpio.Record
	for dir := path.Dir(name); dir != "." && !dirs[dir]; dir = path.Dir(dir) {
		dirs[dir] = true
		records = append([]cpio.Record{cpio.Directory(dir, 0o755)}, records...)
	}
	return records
}
