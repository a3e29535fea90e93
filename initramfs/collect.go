package initramfs

import (
	"bytes"
	"compress/gzip"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"sort"
	"strings"

	"ironroot/initramfs/modules"
	"ironroot/uinit/kmod"

	"github.com/klauspost/compress/zstd"
	"github.com/ulikunitz/xz"
	"golang.org/x/sync/errgroup"
)

// maxModule bounds an unpacked module, in bytes.
const maxModule = 64 << 20

// moduleFile is a module in a kernel's tree.
type moduleFile struct {
	path string // on this machine
	tree string // below the tree's kernel/ folder, without suffix
	info *kmod.Module
}

// listModules returns the modules below dir with what they say of themselves, by path.
func listModules(ctx context.Context, dir string) ([]*moduleFile, error) {
	var files []*moduleFile
	err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if tree, ok := treeName(dir, path); ok && d.Type().IsRegular() {
			files = append(files, &moduleFile{path: path, tree: tree})
		}
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("modules: %w", err)
	}
	group, ctx := errgroup.WithContext(ctx)
	group.SetLimit(runtime.GOMAXPROCS(0))
	for _, f := range files {
		group.Go(func() error {
			if err := ctx.Err(); err != nil {
				return err
			}
			return f.read()
		})
	}
	return files, group.Wait()
}

// treeName returns the path of a module below kernel/ without suffix, and whether path is one of a module.
func treeName(dir, path string) (string, bool) {
	name, err := filepath.Rel(dir, path)
	if err != nil {
		return "", false
	}
	base, _, found := strings.Cut(filepath.Base(name), ".ko")
	if !found {
		return "", false
	}
	tree := filepath.Join(filepath.Dir(name), base)
	if _, below, found := strings.Cut("/"+tree, "/kernel/"); found {
		tree = below
	}
	return tree, true
}

func (f *moduleFile) read() error {
	if strings.HasSuffix(f.path, ".ko") { // only the small part of interest is read
		file, err := os.Open(f.path)
		if err != nil {
			return err
		}
		defer file.Close() //nolint:errcheck // only read
		stat, err := file.Stat()
		if err != nil {
			return err
		}
		f.info, err = kmod.Modinfo(file, stat.Size())
		return f.named(err)
	}
	image, err := f.image()
	if err != nil {
		return err
	}
	f.info, err = kmod.Modinfo(bytes.NewReader(image), int64(len(image)))
	return f.named(err)
}

func (f *moduleFile) named(err error) error {
	if err != nil {
		return fmt.Errorf("%s: %w", f.path, err)
	}
	if f.info.Name == "" {
		f.info.Name = kmod.Normalize(filepath.Base(f.tree))
	}
	f.info.Folder = filepath.Dir(f.tree)
	return nil
}

// image returns the unpacked module.
func (f *moduleFile) image() ([]byte, error) {
	file, err := os.Open(f.path)
	if err != nil {
		return nil, err
	}
	defer file.Close() //nolint:errcheck // only read
	var r io.Reader = file
	switch filepath.Ext(f.path) {
	case ".ko":
	case ".gz":
		r, err = gzip.NewReader(file)
	case ".xz":
		r, err = xz.NewReader(file)
	case ".zst":
		var z *zstd.Decoder
		if z, err = zstd.NewReader(file); err == nil {
			defer z.Close()
		}
		r = z
	default:
		return nil, fmt.Errorf("%s: compression %q is not supported", f.path, filepath.Ext(f.path))
	}
	if err != nil {
		return nil, fmt.Errorf("%s: %w", f.path, err)
	}
	data, err := io.ReadAll(io.LimitReader(r, maxModule+1))
	if err == nil && len(data) > maxModule {
		err = errors.New("larger than any module")
	}
	if err != nil {
		return nil, fmt.Errorf("%s: %w", f.path, err)
	}
	return data, nil
}

// choose returns the modules of the selection with all they depend on, by name.
func choose(files []*moduleFile, selection modules.Selection) []*moduleFile {
	byName := make(map[string]*moduleFile, len(files))
	aliases := map[string][]string{} // plain names that a module also goes by, as "crypto-crc32c"
	for _, f := range files {
		byName[f.info.Name] = f
		for _, alias := range f.info.Aliases {
			if !strings.ContainsAny(alias, "*?[") {
				aliases[kmod.Normalize(alias)] = append(aliases[kmod.Normalize(alias)], f.info.Name)
			}
		}
	}
	chosen := map[string]*moduleFile{}
	var add func(name string)
	add = func(name string) {
		f := byName[name]
		if f == nil {
			for _, other := range aliases[name] {
				if chosen[other] == nil {
					add(other)
				}
			}
			return
		}
		if chosen[name] != nil {
			return
		}
		chosen[name] = f
		for _, list := range [][]string{f.info.Depends, f.info.Pre, f.info.Post} {
			for _, other := range list {
				add(other)
			}
		}
	}
	for _, f := range files {
		if selection.Has(f.tree) {
			add(f.info.Name)
		}
	}
	result := make([]*moduleFile, 0, len(chosen))
	for _, f := range chosen {
		result = append(result, f)
	}
	sort.Slice(result, func(i, j int) bool { return result[i].info.Name < result[j].info.Name })
	return result
}
