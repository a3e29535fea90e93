//go:build linux && long

package debootstrap

import (
	"context"
	"fmt"
	"io"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"ironroot/internal/cachedir"
)

// Ramdisk describes a ramdisk with programs of Debian.
type Ramdisk struct {
	Name     string // of the directory in the cache
	Suite    string
	Packages []string
	// Files are the contents of files, by name. The one that is named customize.sh is a script that turns the installed
	// Debian, its argument, into the files of the ramdisk. It writes them into the directory $OUT, which also has Files.
	Files map[string]string
	// Deb is the path of a package that the script receives as $KERNEL_DEB, or "".
	Deb string
	// Version is an additional part of the cache key.
	Version string
}

// Build returns the directory with the files of the ramdisk, which it builds or takes from the cache. progress receives
// the output of the programs that build it.
func (r Ramdisk) Build(ctx context.Context, progress io.Writer) (string, error) {
	recipe := append(slices.Clone(r.Packages), r.Suite, r.Version, filepath.Base(r.Deb))
	for _, name := range slices.Sorted(maps.Keys(r.Files)) {
		recipe = append(recipe, name, r.Files[name])
	}
	dir, err := cachedir.Get("", r.Name+"-"+r.Suite, strings.Join(recipe, "\n"), func(dir string) error {
		_, _ = fmt.Fprintf(progress, "building the ramdisk %s in %s\n", r.Name, dir)
		if err := os.Mkdir(dir, 0o755); err != nil {
			return err
		}
		for name, content := range r.Files {
			if err := os.WriteFile(filepath.Join(dir, name), []byte(content), 0o755); err != nil {
				return err
			}
		}
		return Install(ctx, progress, r.Suite, "/dev/null", r.Packages, "--customize-hook=OUT='"+dir+"' KERNEL_DEB='"+
			r.Deb+"' sh '"+filepath.Join(dir, "customize.sh")+`' "$1"`)
	})
	if err != nil {
		return "", fmt.Errorf("ramdisk %s: %w", r.Name, err)
	}
	return dir, nil
}
