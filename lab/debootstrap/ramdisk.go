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
	// Files are the contents of files, by name. The script customize.sh writes the ramdisk into the directory $OUT,
	// which already contains Files. Its argument is the directory with the installed Debian.
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
		hook := fmt.Sprintf(`--customize-hook=OUT='%s' KERNEL_DEB='%s' sh '%s' "$1"`,
			dir, r.Deb, filepath.Join(dir, "customize.sh"))
		return Install(ctx, progress, r.Suite, "/dev/null", r.Packages, hook)
	})
	if err != nil {
		return "", fmt.Errorf("ramdisk %s: %w", r.Name, err)
	}
	return dir, nil
}
