package debian

import (
	"archive/tar"
	"bufio"
	"compress/gzip"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/klauspost/compress/zstd"
	"github.com/ulikunitz/xz"
)

// maxControl bounds the control file of a package, in bytes.
const maxControl = 1 << 20

// Extract unpacks the files of a package whose names, without the leading "./", match accepts, into dir. It creates
// directories as needed. Symbolic links are kept, hard links become separate files, and devices are omitted.
func Extract(ctx context.Context, deb, dir string, match func(name string) bool) error {
	root, err := os.OpenRoot(dir)
	if err != nil {
		return fmt.Errorf("unpack %s: %w", deb, err)
	}
	defer root.Close() //nolint:errcheck // nothing was written through it
	err = walk(deb, "data.tar", func(h *tar.Header, r io.Reader) error {
		if err := ctx.Err(); err != nil {
			return err
		}
		if !match(h.Name) {
			return nil
		}
		return extract(root, h, r)
	})
	if err != nil {
		return fmt.Errorf("unpack %s: %w", deb, err)
	}
	return nil
}

// ReadFiles fetches a package and reads files from it, which must exist. It returns the path of the package.
func (a *Archive) ReadFiles(ctx context.Context, pkg string, files map[string]*[]byte) (string, error) {
	deb, err := a.Fetch(ctx, pkg)
	if err != nil {
		return "", err
	}
	dir, err := os.MkdirTemp("", "ironroot-package-*")
	if err != nil {
		return "", err
	}
	defer os.RemoveAll(dir) //nolint:errcheck // a temporary directory
	wanted := func(name string) bool { _, ok := files[strings.TrimPrefix(name, "./")]; return ok }
	if err := Extract(ctx, deb, dir, wanted); err != nil {
		return "", err
	}
	for name, content := range files {
		if *content, err = os.ReadFile(filepath.Join(dir, name)); err != nil {
			return "", fmt.Errorf("package %s has no %s: %w", pkg, name, err)
		}
	}
	return deb, nil
}

// ExtractAll unpacks the files of packages whose names match accepts, and then calls finish, if not nil, with their
// directory, which is renamed to dir at the end. So dir is complete if it exists, and ExtractAll then does nothing.
func ExtractAll(
	ctx context.Context, debs []string, dir string, match func(name string) bool, finish func(dir string) error,
) error {
	if _, err := os.Stat(dir); err == nil {
		return nil
	}
	if err := os.MkdirAll(filepath.Dir(dir), 0o755); err != nil {
		return err
	}
	work, err := os.MkdirTemp(filepath.Dir(dir), ".unpack-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(work) //nolint:errcheck // renamed on success
	for _, deb := range debs {
		if err := Extract(ctx, deb, work, match); err != nil {
			return err
		}
	}
	if finish != nil {
		if err := finish(work); err != nil {
			return err
		}
	}
	if err := os.Chmod(work, 0o755); err != nil {
		return err
	}
	if err := os.Rename(work, dir); !errors.Is(err, fs.ErrExist) {
		return err
	}
	return nil // another process was faster
}

// extract writes one file. root rejects names and links that lead out of it.
func extract(root *os.Root, h *tar.Header, r io.Reader) error {
	if err := root.MkdirAll(filepath.Dir(h.Name), 0o755); err != nil {
		return err
	}
	switch h.Typeflag {
	case tar.TypeDir:
		return root.MkdirAll(h.Name, 0o755)
	case tar.TypeSymlink:
		return root.Symlink(h.Linkname, h.Name)
	case tar.TypeLink:
		data, err := root.ReadFile(strings.TrimPrefix(h.Linkname, "./"))
		if err != nil {
			return err
		}
		return root.WriteFile(h.Name, data, h.FileInfo().Mode().Perm())
	case tar.TypeReg:
		f, err := root.OpenFile(h.Name, os.O_CREATE|os.O_WRONLY|os.O_TRUNC, h.FileInfo().Mode().Perm())
		if err != nil {
			return err
		}
		if _, err := io.Copy(f, r); err != nil {
			return errors.Join(fmt.Errorf("%s: %w", h.Name, err), f.Close())
		}
		return f.Close()
	default:
		return nil
	}
}

// Depends returns the names in the Depends field of a package, without versions. Of alternatives it returns the first.
func Depends(deb string) ([]string, error) {
	var control []byte
	err := walk(deb, "control.tar", func(h *tar.Header, r io.Reader) (err error) {
		if h.Name == "control" {
			control, err = io.ReadAll(io.LimitReader(r, maxControl))
		}
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("read %s: %w", deb, err)
	}
	return parseDepends(string(control)), nil
}

func parseDepends(control string) []string {
	var names []string
	inside := false
	for line := range strings.Lines(control) {
		value, found := strings.CutPrefix(line, "Depends:")
		continued := inside && strings.HasPrefix(line, " ")
		if inside = found || continued; !inside {
			continue
		}
		for dependency := range strings.SplitSeq(value, ",") {
			if fields := strings.Fields(dependency); len(fields) > 0 {
				name, _, _ := strings.Cut(fields[0], ":")
				names = append(names, name)
			}
		}
	}
	return names
}

// walk calls visit for each entry of a tar file in the package. member is its name without the suffix of a compression.
// The names of the entries lack the leading "./".
func walk(deb, member string, visit func(*tar.Header, io.Reader) error) error {
	f, err := os.Open(deb)
	if err != nil {
		return err
	}
	defer f.Close() //nolint:errcheck // only read
	name, r, err := findMember(bufio.NewReaderSize(f, 1<<20), member)
	if err != nil {
		return err
	}
	r, done, err := decompress(strings.TrimPrefix(name, member), r)
	if err != nil {
		return fmt.Errorf("%s: %w", name, err)
	}
	defer done()
	entries := tar.NewReader(r)
	for {
		h, err := entries.Next()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
		h.Name = strings.TrimPrefix(h.Name, "./")
		if h.Name == "" {
			continue
		}
		if err := visit(h, entries); err != nil {
			return err
		}
	}
}

func decompress(suffix string, r io.Reader) (io.Reader, func(), error) {
	nothing := func() {}
	switch suffix {
	case "":
		return r, nothing, nil
	case ".gz":
		z, err := gzip.NewReader(r)
		return z, nothing, err
	case ".xz":
		z, err := xz.NewReader(r)
		return z, nothing, err
	case ".zst":
		z, err := zstd.NewReader(r)
		if err != nil {
			return nil, nil, err
		}
		return z, z.Close, nil
	default:
		return nil, nil, fmt.Errorf("compression %q is not supported", suffix)
	}
}

const (
	arMagic      = "!<arch>\n"
	arHeaderSize = 60
)

// findMember returns the name and content of the first member of an ar archive whose name starts with prefix.
func findMember(r io.Reader, prefix string) (string, io.Reader, error) {
	magic := make([]byte, len(arMagic))
	if _, err := io.ReadFull(r, magic); err != nil || string(magic) != arMagic {
		return "", nil, fmt.Errorf("starts with %q, want %q (an ar archive)", magic, arMagic)
	}
	header := make([]byte, arHeaderSize)
	for {
		if _, err := io.ReadFull(r, header); errors.Is(err, io.EOF) {
			return "", nil, fmt.Errorf("has no member %s", prefix)
		} else if err != nil {
			return "", nil, fmt.Errorf("ar header: %w", err)
		}
		// name[16] date[12] uid[6] gid[6] mode[8] size[10] magic[2], all text padded with blanks
		name := strings.TrimSuffix(strings.TrimRight(string(header[:16]), " "), "/")
		size, err := strconv.ParseInt(strings.TrimRight(string(header[48:58]), " "), 10, 64)
		if err != nil || size < 0 || string(header[58:]) != "`\n" {
			return "", nil, fmt.Errorf("ar header %q is broken", header)
		}
		if strings.HasPrefix(name, prefix) {
			return name, io.LimitReader(r, size), nil
		}
		if _, err := io.CopyN(io.Discard, r, size+size%2); err != nil {
			return "", nil, fmt.Errorf("ar member %s: %w", name, err)
		}
	}
}
