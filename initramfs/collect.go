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

// Module is a module in a kernel's tree.
type Module struct {
	Tree string // path below the directory of searchOrder, without suffix: drivers/net/tun
	Info *kmod.Module

	path string // on this machine
	rank int    // index of that directory: of two modules of one name, the one with the lower rank is used
}

// ListModules returns the modules below dir with their modinfo, ordered by path.
func ListModules(ctx context.Context, dir string) ([]*Module, error) {
	known, err := loadModinfo(dir)
	if err != nil {
		return nil, fmt.Errorf("modules: %w", err)
	}
	var files []*Module
	err = filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if name, err := filepath.Rel(dir, path); err == nil && d.Type().IsRegular() {
			if tree, rank, ok := treeName(name); ok {
				files = append(files, &Module{path: path, Tree: tree, rank: rank, Info: known[name]})
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

func (f *Module) read() error {
	if f.Info != nil { // cached, possibly by another version
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
		f.Info, err = kmod.Modinfo(file, stat.Size())
		return f.named(err)
	}
	image, err := f.image()
	if err != nil {
		return err
	}
	f.Info, err = kmod.Modinfo(bytes.NewReader(image), int64(len(image)))
	return f.named(err)
}

func (f *Module) named(err error) error {
	if err != nil {
		return fmt.Errorf("%s: %w", f.path, err)
	}
	if f.Info.Name == "" {
		f.Info.Name = kmod.Normalize(filepath.Base(f.Tree))
	}
	f.Info.Dir = filepath.Dir(f.Tree)
	return nil
}

// image returns the unpacked module.
func (f *Module) image() ([]byte, error) {
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
func choose(files []*Module, selection modules.Selection) []*Module {
	byName := make(map[string]*Module, len(files))
	aliases := map[string][]string{} // names of modules by alias without wildcards, such as "crypto-crc32c"
	for _, f := range files {
		if other := byName[f.Info.Name]; other == nil || f.rank < other.rank {
			byName[f.Info.Name] = f
		}
		for _, alias := range f.Info.Aliases {
			if !strings.ContainsAny(alias, "*?[") {
				aliases[kmod.Normalize(alias)] = append(aliases[kmod.Normalize(alias)], f.Info.Name)
			}
		}
	}
	chosen := map[string]*Module{}
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
		for _, list := range [][]string{f.Info.Depends, f.Info.Pre, f.Info.Post} {
			for _, other := range list {
				add(other)
			}
		}
	}
	for _, f := range files {
		if selection.Has(f.Tree) {
			add(f.Info.Name)
		}
	}
	result := make([]*Module, 0, len(chosen))
	for _, f := range chosen {
		result = append(result, f)
	}
	sort.Slice(result, func(i, j int) bool { return result[i].Info.Name < result[j].Info.Name })
	return result
}
