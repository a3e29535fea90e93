// Package netloaders reads the boot loaders that machines load from the network, from a directory or otherwise from
// Debian's packages.
package netloaders

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"

	"ironroot/initramfs/debian"
	"ironroot/netboot/pxe"
)

// debianFile is a file in a Debian package, NAME:ARCH.
type debianFile struct{ pkg, path string }

// sources are the boot loaders of Debian by their names.
var sources = map[string]debianFile{
	pxe.BIOSLoader:      {"ipxe:amd64", "usr/lib/ipxe/undionly.kpxe"},
	pxe.IPXELoaderAMD64: {"ipxe:amd64", "usr/lib/ipxe/snponly.efi"},
	pxe.IPXELoaderARM64: {"ipxe:amd64", "usr/lib/ipxe/ipxe-arm64.efi"},
	pxe.ShimLoaderAMD64: {"shim-signed:amd64", "usr/lib/shim/shimx64.efi.signed"},
	pxe.GRUBLoaderAMD64: {"grub-efi-amd64-signed:amd64", "usr/lib/grub/x86_64-efi-signed/grubnetx64.efi.signed"},
	pxe.ShimLoaderARM64: {"shim-signed:arm64", "usr/lib/shim/shimaa64.efi.signed"},
	pxe.GRUBLoaderARM64: {"grub-efi-arm64-signed:arm64", "usr/lib/grub/arm64-efi-signed/grubnetaa64.efi.signed"},
}

// Packages returns the Debian packages with the boot loaders, each NAME:ARCH.
func Packages() []string {
	var packages []string
	for _, file := range sources {
		packages = append(packages, file.pkg)
	}
	slices.Sort(packages)
	return slices.Compact(packages)
}

// Read reads boot loaders by their names. dir is the directory whose files are preferred, "" for none. Packages are
// fetched only for files that it lacks.
func Read(ctx context.Context, names []string, dir string, o debian.Options) (map[string][]byte, error) {
	loaders := map[string][]byte{}
	packages := map[string][]string{} // names of loaders by package
	for _, name := range names {
		if dir != "" {
			content, err := os.ReadFile(filepath.Join(dir, name))
			if err == nil {
				loaders[name] = content
				continue
			}
			if !errors.Is(err, fs.ErrNotExist) {
				return nil, err
			}
		}
		file, found := sources[name]
		if !found {
			return nil, fmt.Errorf("boot loader %s is in no package", name)
		}
		packages[file.pkg] = append(packages[file.pkg], name)
	}
	if len(packages) == 0 {
		return loaders, nil
	}
	archive, err := debian.Open(o)
	if err != nil {
		return nil, err
	}
	for pkg, names := range packages {
		files := map[string]*[]byte{}
		contents := make([][]byte, len(names))
		for i, name := range names {
			files[sources[name].path] = &contents[i]
		}
		if _, err := archive.ReadFiles(ctx, pkg, files); err != nil {
			return nil, fmt.Errorf("boot loader: %w", err)
		}
		for i, name := range names {
			loaders[name] = contents[i]
		}
	}
	return loaders, nil
}
