package oci

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/layout"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/tarball"
	"github.com/google/go-containerregistry/pkg/v1/types"
)

// Names of files in a layout.
const (
	markerFile = "oci-layout"
	// IndexFile is the name of the file that refers to everything else by SHA-256.
	IndexFile = "index.json"
	blobDir   = "blobs/sha256"
)

// Image is the image of one architecture.
type Image struct {
	Arch  string   // GOARCH: "amd64" or "arm64"
	Files []string // paths; their last elements are the names in the image
}

// Options describe a layout.
type Options struct {
	Images      []Image
	Tag         string            // name of the images in the layout
	Created     time.Time         // of images and files
	Annotations map[string]string // of each image and of their index
}

// IsLayout reports whether a directory is an OCI image layout.
func IsLayout(dir string) bool {
	info, err := os.Lstat(filepath.Join(dir, markerFile))
	return err == nil && info.Mode().IsRegular()
}

// Write writes a layout to the directory dir, which it replaces if it is a layout. The directory is always complete. It
// returns the SHA-256 of the index of images in hex, under which a registry has them.
func Write(dir string, o Options) (string, error) {
	index, err := indexOf(o)
	if err == nil {
		err = write(dir, index, o.Tag)
	}
	if err != nil {
		return "", fmt.Errorf("OCI layout %s: %w", dir, err)
	}
	digest, err := index.Digest()
	return digest.Hex, err
}

func write(dir string, index v1.ImageIndex, tag string) error {
	if _, err := os.Lstat(dir); err == nil && !IsLayout(dir) {
		return errors.New("exists and is not an OCI layout")
	} else if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	work, err := os.MkdirTemp(filepath.Dir(dir), ".oci-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(work) //nolint:errcheck // renamed on success
	path, err := layout.Write(work, empty.Index)
	if err != nil {
		return err
	}
	err = path.AppendIndex(index, layout.WithAnnotations(map[string]string{"org.opencontainers.image.ref.name": tag}))
	if err != nil {
		return err
	}
	if err := setModes(work); err != nil {
		return err
	}
	if err := os.RemoveAll(dir); err != nil {
		return err
	}
	return os.Rename(work, dir)
}

// setModes sets the modes of a layout's files, which the library makes executable.
func setModes(dir string) error {
	return filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if d.IsDir() {
			return os.Chmod(path, 0o755)
		}
		return os.Chmod(path, 0o644)
	})
}

// indexOf returns the index of all images, ordered by architecture.
func indexOf(o Options) (v1.ImageIndex, error) {
	images := slices.Clone(o.Images)
	slices.SortFunc(images, func(a, b Image) int { return strings.Compare(a.Arch, b.Arch) })
	index := mutate.IndexMediaType(empty.Index, types.OCIImageIndex)
	for _, image := range images {
		built, err := imageOf(image, o)
		if err != nil {
			return nil, fmt.Errorf("image for %s: %w", image.Arch, err)
		}
		index = mutate.AppendManifests(index, mutate.IndexAddendum{
			Add: built, Descriptor: v1.Descriptor{Platform: &v1.Platform{OS: "linux", Architecture: image.Arch}},
		})
	}
	annotated, ok := mutate.Annotations(index, o.Annotations).(v1.ImageIndex)
	if !ok {
		return nil, errors.New("annotated index is not an index")
	}
	return annotated, nil
}

func imageOf(image Image, o Options) (v1.Image, error) {
	layer, err := layerOf(image.Files, o.Created)
	if err != nil {
		return nil, err
	}
	config, err := empty.Image.ConfigFile()
	if err != nil {
		return nil, err
	}
	config.OS, config.Architecture = "linux", image.Arch
	config.Created = v1.Time{Time: o.Created.UTC()}
	built, err := mutate.ConfigFile(mutate.MediaType(empty.Image, types.OCIManifestSchema1), config)
	if err != nil {
		return nil, err
	}
	built = mutate.ConfigMediaType(built, types.OCIConfigJSON)
	built, err = mutate.Append(built, mutate.Addendum{
		Layer:   layer,
		History: v1.History{Created: v1.Time{Time: o.Created.UTC()}, CreatedBy: "ironroot image --oci"},
	})
	if err != nil {
		return nil, err
	}
	annotated, ok := mutate.Annotations(built, o.Annotations).(v1.Image)
	if !ok {
		return nil, errors.New("annotated image is not an image")
	}
	return annotated, nil
}

// layerOf returns a layer with files, ordered by name.
func layerOf(paths []string, created time.Time) (v1.Layer, error) {
	paths = slices.SortedFunc(slices.Values(paths), func(a, b string) int {
		return strings.Compare(filepath.Base(a), filepath.Base(b))
	})
	var out bytes.Buffer
	w := tar.NewWriter(&out)
	for _, path := range paths {
		data, err := os.ReadFile(path)
		if err != nil {
			return nil, err
		}
		header := &tar.Header{
			Name: filepath.Base(path), Mode: 0o644, Size: int64(len(data)), ModTime: created.Truncate(time.Second),
			Format: tar.FormatUSTAR,
		}
		if err := w.WriteHeader(header); err != nil {
			return nil, err
		}
		if _, err := w.Write(data); err != nil {
			return nil, err
		}
	}
	if err := w.Close(); err != nil {
		return nil, err
	}
	open := func() (io.ReadCloser, error) { return io.NopCloser(bytes.NewReader(out.Bytes())), nil }
	return tarball.LayerFromOpener(open, tarball.WithCompressionLevel(gzip.NoCompression),
		tarball.WithMediaType(types.OCILayer))
}
