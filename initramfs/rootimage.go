package initramfs

import (
	"archive/tar"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"strings"

	"github.com/google/go-containerregistry/pkg/authn"
	"github.com/google/go-containerregistry/pkg/name"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/layout"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/partial"
	"github.com/google/go-containerregistry/pkg/v1/remote"
	"github.com/google/go-containerregistry/pkg/v1/tarball"
	"github.com/google/go-containerregistry/pkg/v1/validate"

	"ironroot/initramfs/squashfs"
)

// maxRoot limits the size of an unpacked container image, in bytes.
const maxRoot = 16 << 30

// cutReference returns the reference of a container image in a registry.
func cutReference(source string) (string, bool) {
	for _, prefix := range []string{"oci://", "docker://"} {
		if reference, ok := strings.CutPrefix(source, prefix); ok {
			return reference, true
		}
	}
	return "", false
}

// isContainerImage reports whether a source names a container image: a reference, a directory with an OCI image layout,
// or a tarball as docker save writes it. Any other directory does not.
func isContainerImage(source string) (bool, error) {
	if _, ok := cutReference(source); ok {
		return true, nil
	}
	info, err := os.Stat(source)
	if err != nil || !info.IsDir() {
		return true, err
	}
	_, err = os.Stat(filepath.Join(source, "oci-layout"))
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	return true, err
}

// containerImage returns the container image that a source names.
func (b *builder) containerImage(ctx context.Context, source string) (v1.Image, error) {
	if reference, ok := cutReference(source); ok {
		parsed, err := name.ParseReference(reference)
		if err != nil {
			return nil, err
		}
		return remote.Image(parsed, remote.WithContext(ctx), remote.WithPlatform(b.platform()),
			remote.WithAuthFromKeychain(authn.DefaultKeychain)) // verifies digests
	}
	info, err := os.Stat(source)
	if err != nil {
		return nil, err
	}
	var image v1.Image
	if info.IsDir() {
		image, err = b.layoutImage(source)
	} else {
		image, err = tarball.ImageFromPath(source, nil)
	}
	if err != nil {
		return nil, err
	}
	return image, validate.Image(image)
}

func (b *builder) platform() v1.Platform { return v1.Platform{OS: "linux", Architecture: b.Arch} }

// layoutImage returns the image for the architecture from an OCI image layout.
func (b *builder) layoutImage(dir string) (v1.Image, error) {
	index, err := layout.ImageIndexFromPath(dir)
	if err != nil {
		return nil, err
	}
	platform := b.platform()
	images, err := partial.FindImages(index, func(d v1.Descriptor) bool {
		return d.Platform == nil || d.Platform.Satisfies(platform)
	})
	if err != nil {
		return nil, err
	}
	if len(images) != 1 {
		return nil, fmt.Errorf("got %d images for %s, want one", len(images), platform)
	}
	return images[0], nil
}

// imageEntries returns the files of a container image, whose layers must not have paths that lead out of it. Files that
// are neither regular nor links are omitted.
func imageEntries(image v1.Image) ([]squashfs.Entry, error) {
	files := mutate.Extract(image)
	defer files.Close() //nolint:errcheck // only read
	var entries []squashfs.Entry
	var total int64
	for in := tar.NewReader(files); ; {
		h, err := in.Next()
		if errors.Is(err, io.EOF) {
			// After an error the archive is complete, too, and the error follows it.
			_, err := io.Copy(io.Discard, files)
			return entries, err
		}
		if err != nil {
			return nil, err
		}
		e := squashfs.Entry{Path: insidePath(h.Name), Mode: h.FileInfo().Mode(), ModTime: h.ModTime}
		switch h.Typeflag {
		case tar.TypeDir:
		case tar.TypeSymlink:
			e.Mode, e.Target = fs.ModeSymlink|0o777, h.Linkname
		case tar.TypeLink:
			e.Link = insidePath(h.Linkname)
		case tar.TypeReg:
			if total += h.Size; total > maxRoot {
				return nil, fmt.Errorf("more than %d bytes of files", int64(maxRoot))
			}
			data, err := io.ReadAll(in)
			if err != nil {
				return nil, fmt.Errorf("%s: %w", h.Name, err)
			}
			e.Size = int64(len(data))
			e.Content = squashfs.Bytes(data)
		default:
			continue
		}
		entries = append(entries, e)
	}
}

// insidePath returns a path of a layer, relative to the root that it cannot leave.
func insidePath(name string) string {
	if name = strings.TrimPrefix(path.Clean("/"+name), "/"); name == "" {
		return "."
	}
	return name
}
