package initramfs

import (
	"bytes"
	"compress/gzip"
	"context"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"sort"
	"strings"

	"github.com/klauspost/compress/zstd"
	"github.com/ulikunitz/xz"
	"golang.org/x/sync/errgroup"

	"ironroot/initramfs/modules"
	"ironroot/internal/bounded"
	"ironroot/uinit/kmod"
)

// maxModule limits the size of an unpacked module, in bytes.
const maxModule = 64 << 20

// moduleFile is a module in a kernel's tree.
type moduleFile struct {
	path string // on this machine
	tree string // path below the directory of searchOrder, without suffix
	rank int    // index of that directory: of two modules of one name, the one with the lower rank is used
	info *kmod.Module
}

// listModules returns the modules below dir with their modinfo, ordered by path.
func listModules(ctx context.Context, dir string) ([]*moduleFile, error) {
	known, err := loadModinfo(dir)
	if err != nil {
		return nil, fmt.Errorf("modules: %w", err)
	}
	var files []*moduleFile
	err = filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if name, err := filepath.Rel(dir, path); err == nil && d.Type().IsRegular() {
			if tree, rank, ok := treeName(name); ok {
				files = append(files, &moduleFile{path: path, tree: tree, rank: rank, info: known[name]})
			}
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

// searchOrder lists the directories of a kernel's modules in the order in which depmod of the distributions prefers
// them: "search updates extra ubuntu built-in weak-updates" in depmod.d(5).
var searchOrder = []string{"updates", "extra", "ubuntu", "kernel", "weak-updates"}

// treeName returns the path of a module below its directory of searchOrder, without suffix and without "dkms/", and the
// index of that directory. It reports whether name belongs to a module. A module outside of these directories has its
// whole path and the index of kernel.
func treeName(name string) (tree string, rank int, ok bool) {
	base, _, found := strings.Cut(filepath.Base(name), ".ko")
	if !found {
		return "", 0, false
	}
	tree = filepath.Join(filepath.Dir(name), base)
	for rank, directory := range searchOrder {
		if _, below, found := strings.Cut("/"+tree, "/"+directory+"/"); found {
			return strings.TrimPrefix(below, "dkms/"), rank, true
		}
	}
	return tree, slices.Index(searchOrder, "kernel"), true
}

func (f *moduleFile) read() error {
	if f.info != nil { // cached, possibly by another version
		return f.named(nil)
	}
	if strings.HasSuffix(f.path, ".ko") { // only a small part of the file is read
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
	f.info.Dir = filepath.Dir(f.tree)
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
	data, err := bounded.ReadAll(r, maxModule)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", f.path, err)
	}
	return data, nil
}

// choose returns the modules of the selection and all their dependencies, ordered by name.
func choose(files []*moduleFile, selection modules.Selection) []*moduleFile {
	byName := make(map[string]*moduleFile, len(files))
	aliases := map[string][]string{} // names of modules by alias without wildcards, such as "crypto-crc32c"
	for _, f := range files {
		if other := byName[f.info.Name]; other == nil || f.rank < other.rank {
			byName[f.info.Name] = f
		}
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
