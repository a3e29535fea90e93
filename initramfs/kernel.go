package initramfs

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"

	"ironroot/initramfs/debian"
	"ironroot/uinit/kmod"
)

// Kernel describes the files of a kernel.
type Kernel struct {
	Image   string // path of the bootable image
	Modules string // directory to search for modules, "" = none
	Release string // as `uname -r` prints it; "" = unknown until the modules are read
	Config  string // path of its configuration; "" = unknown

	debs []string // packages that Modules was unpacked from
}

var (
	kernelPackage = regexp.MustCompile(`^linux-(image|modules)-`)
	kernelFile    = regexp.MustCompile(`^boot/(vmlinuz|config)-|^usr/share/doc/[^/]+/copyright$|` +
		`^(usr/)?lib/modules/[^/]+/(kernel/|modules\.builtin$)`)
)

// IsKernelPackage reports whether a dependency of a kernel package is part of the kernel.
func IsKernelPackage(name string) bool { return kernelPackage.MatchString(name) }

// FetchKernel fetches a kernel package, or those that a meta package depends on, and unpacks kernel and modules below
// cacheDir. Later calls use the unpacked files. NAME:ARCH is a package of another architecture than this machine's.
func FetchKernel(ctx context.Context, archive *debian.Archive, cacheDir, pkg string,
	progress func(format string, args ...any),
) (Kernel, error) {
	progress("fetching package %s", pkg)
	debs, err := archive.FetchAll(ctx, pkg, IsKernelPackage)
	if err != nil {
		return Kernel{}, fmt.Errorf("%w\na kernel of your own does as well: --kernel FILE --modules DIR", err)
	}
	last := debs[len(debs)-1]
	dir := filepath.Join(cacheDir, "kernel-trees", strings.TrimSuffix(filepath.Base(last), ".deb"))
	if _, err := os.Stat(dir); err != nil {
		progress("unpacking %s", filepath.Base(last))
	}
	finish := func(dir string) error { return saveModinfo(ctx, dir) }
	if err := debian.ExtractAll(ctx, debs, dir, kernelFile.MatchString, finish); err != nil {
		return Kernel{}, err
	}
	images, err := filepath.Glob(filepath.Join(dir, "boot", "vmlinuz-*"))
	if err != nil {
		return Kernel{}, fmt.Errorf("kernel package %s: %w", pkg, err)
	}
	if len(images) != 1 {
		return Kernel{}, fmt.Errorf("kernel package %s holds %d kernels, want 1", pkg, len(images))
	}
	release := strings.TrimPrefix(filepath.Base(images[0]), "vmlinuz-")
	return Kernel{
		Image: images[0], Modules: dir, Release: release, Config: filepath.Join(dir, "boot", "config-"+release),
		debs: debs,
	}, nil
}

// modinfoFile is the name of the file that stores the modinfo of all modules of an unpacked package, by path. It is a
// cache: reading the modinfo from compressed modules takes half a minute.
const modinfoFile = "modinfo.json"

// saveModinfo writes modinfoFile into the directory of a package.
func saveModinfo(ctx context.Context, dir string) error {
	files, err := ListModules(ctx, dir)
	if err != nil {
		return err
	}
	known := make(map[string]*kmod.Module, len(files))
	for _, f := range files {
		name, err := filepath.Rel(dir, f.path)
		if err != nil {
			return err
		}
		known[name] = f.Info
	}
	text, err := json.Marshal(known)
	if err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(dir, modinfoFile), text, 0o644)
}

// loadModinfo returns the content of modinfoFile, nil if there is none.
func loadModinfo(dir string) (map[string]*kmod.Module, error) {
	text, err := os.ReadFile(filepath.Join(dir, modinfoFile))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	var known map[string]*kmod.Module
	if err := json.Unmarshal(text, &known); err != nil {
		return nil, fmt.Errorf("%s: %w", filepath.Join(dir, modinfoFile), err)
	}
	return known, nil
}

// configured returns a function that reports whether the kernel's configuration enables an option, built in or as a
// module.
func (k Kernel) configured() (func(option string) bool, error) {
	if k.Config == "" {
		return func(string) bool { return false }, nil
	}
	text, err := os.ReadFile(k.Config)
	if err != nil {
		return nil, fmt.Errorf("kernel configuration: %w", err)
	}
	lines := append([]byte("\n"), text...)
	return func(option string) bool {
		return bytes.Contains(lines, []byte("\n"+option+"=y\n")) || bytes.Contains(lines, []byte("\n"+option+"=m\n"))
	}, nil
}
