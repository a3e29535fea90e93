package initramfs

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"

	"ironroot/initramfs/debian"
)

// Kernel is a kernel on disk with the folder of its modules.
type Kernel struct {
	Image   string // path of the bootable image
	Modules string // folder to search for modules, "" = none
	Release string // as `uname -r` prints it; "" = not known before its modules were read
}

var (
	kernelPackage = regexp.MustCompile(`^linux-(image|modules)-`)
	kernelFile    = regexp.MustCompile(`^boot/vmlinuz-|^(usr/)?lib/modules/[^/]+/(kernel/|modules\.builtin$)`)
)

// FetchKernel fetches a kernel package, or the ones a meta package stands for, and unpacks image and modules below
// cacheDir, where they stay for the next time. NAME:ARCH is a package of another architecture than this machine's.
func FetchKernel(ctx context.Context, cacheDir, pkg string, progress func(format string, args ...any)) (Kernel, error) {
	progress("fetching package %s", pkg)
	debs, err := fetchAll(ctx, filepath.Join(cacheDir, "packages"), pkg)
	if err != nil {
		return Kernel{}, err
	}
	last := debs[len(debs)-1]
	dir := filepath.Join(cacheDir, "kernels", strings.TrimSuffix(filepath.Base(last), ".deb"))
	if _, err := os.Stat(dir); err != nil {
		progress("unpacking %s", filepath.Base(last))
		if err := unpack(ctx, debs, dir); err != nil {
			return Kernel{}, err
		}
	}
	images, err := filepath.Glob(filepath.Join(dir, "boot", "vmlinuz-*"))
	if err != nil {
		return Kernel{}, fmt.Errorf("kernel package %s: %w", pkg, err)
	}
	if len(images) != 1 {
		return Kernel{}, fmt.Errorf("kernel package %s holds %d kernels, want 1", pkg, len(images))
	}
	return Kernel{Image: images[0], Modules: dir, Release: strings.TrimPrefix(filepath.Base(images[0]), "vmlinuz-")}, nil
}

// fetchAll fetches a package and those kernel packages it depends on.
func fetchAll(ctx context.Context, cacheDir, pkg string) ([]string, error) {
	queue, seen, debs := []string{pkg}, map[string]bool{pkg: true}, []string(nil)
	_, arch, foreign := strings.Cut(pkg, ":")
	if foreign {
		arch = ":" + arch
	}
	for len(queue) > 0 {
		deb, err := debian.Fetch(ctx, cacheDir, queue[0])
		if err != nil {
			return nil, fmt.Errorf("%w\n%s", err, fetchHint(pkg))
		}
		queue, debs = queue[1:], append(debs, deb)
		depends, err := debian.Depends(deb)
		if err != nil {
			return nil, err
		}
		for _, name := range depends {
			if kernelPackage.MatchString(name) && !seen[name] {
				seen[name] = true
				queue = append(queue, name+arch)
			}
		}
	}
	return debs, nil
}

// fetchHint says what to do when a kernel package cannot be had. Not every archive has every architecture under one
// address: Ubuntu's does not.
func fetchHint(pkg string) string {
	hint := "a kernel of your own does as well: --kernel FILE --modules DIR"
	if _, arch, foreign := strings.Cut(pkg, ":"); foreign {
		return fmt.Sprintf("the sources of apt here may have no packages of %s; %s", arch, hint)
	}
	return hint
}

// unpack fills dir. It works beside and renames, so that dir is whole when it is there.
func unpack(ctx context.Context, debs []string, dir string) error {
	if err := os.MkdirAll(filepath.Dir(dir), 0o755); err != nil {
		return err
	}
	work, err := os.MkdirTemp(filepath.Dir(dir), ".unpack-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(work) //nolint:errcheck // a leftover does no harm
	for _, deb := range debs {
		if err := debian.Extract(ctx, deb, work, kernelFile.MatchString); err != nil {
			return err
		}
	}
	if err := os.Chmod(work, 0o755); err != nil {
		return err
	}
	if err := os.Rename(work, dir); !errors.Is(err, fs.ErrExist) {
		return err
	}
	return nil // somebody else was as fast
}
