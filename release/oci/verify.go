package oci

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/types"

	"ironroot/internal/bounded"
)

// Limits of a layout.
const (
	maxManifest = 4 << 20 // bytes of an index or manifest
	maxBlobs    = 4096
	maxMarker   = 4096 // bytes
)

const layoutVersion = "1.0.0"

// Verify verifies that the layout in dir is complete: each file that the index refers to, directly or indirectly, has
// its size and SHA-256, and there are no other files. ignored are the names of files at top level that do not belong to
// the layout, such as a signature of the index. The error names every file that differs. Verify returns the SHA-256 of
// the only image or index in the layout, as Write does; "" = there are several.
func Verify(dir string, ignored ...string) (string, error) {
	root, err := os.OpenRoot(dir)
	if err != nil {
		return "", fmt.Errorf("OCI layout: %w", err)
	}
	defer root.Close() //nolint:errcheck // only read
	v := verifier{root: root, seen: map[v1.Hash]bool{}}
	v.marker()
	index, err := v.read(IndexFile, maxManifest)
	if err != nil {
		return "", fmt.Errorf("OCI layout %s: %w", dir, err)
	}
	digest := v.index(IndexFile, index)
	if len(v.problems) == 0 { // otherwise the references of a damaged file are unknown
		v.findOthers(append(ignored, markerFile, IndexFile))
	}
	if err := errors.Join(v.problems...); err != nil {
		return "", fmt.Errorf("OCI layout %s: %w", dir, err)
	}
	return digest, nil
}

type verifier struct {
	root     *os.Root
	seen     map[v1.Hash]bool
	problems []error
}

func (v *verifier) report(format string, args ...any) {
	v.problems = append(v.problems, fmt.Errorf(format, args...))
}

func blobName(hash v1.Hash) string { return filepath.Join(filepath.FromSlash(blobDir), hash.Hex) }

// read returns the content of a file with at most limit bytes.
func (v *verifier) read(name string, limit int64) ([]byte, error) {
	f, err := v.root.Open(name)
	if err != nil {
		return nil, err
	}
	defer f.Close() //nolint:errcheck // only read
	return bounded.ReadOpen(f, limit)
}

// marker verifies the file that says what the directory is.
func (v *verifier) marker() {
	text, err := v.read(markerFile, maxMarker)
	if err != nil {
		v.problems = append(v.problems, err)
		return
	}
	// No signature covers the file, so nothing but the version is accepted in it.
	var marker struct {
		Version string `json:"imageLayoutVersion"`
	}
	d := json.NewDecoder(bytes.NewReader(text))
	d.DisallowUnknownFields()
	err = d.Decode(&marker)
	if err == nil {
		if _, more := d.Token(); !errors.Is(more, io.EOF) {
			err = errors.New("has more than one value")
		}
	}
	if err != nil || marker.Version != layoutVersion {
		v.report("%s: got version %q, want %q (%v)", markerFile, marker.Version, layoutVersion, err)
	}
}

// index verifies what an index refers to. It returns the SHA-256 of the only entry in hex.
func (v *verifier) index(name string, data []byte) string {
	index, err := v1.ParseIndexManifest(bytes.NewReader(data))
	if err != nil {
		v.report("%s: parse index: %w", name, err)
		return ""
	}
	for _, d := range index.Manifests {
		v.manifest(d)
	}
	if len(index.Manifests) != 1 {
		return ""
	}
	return index.Manifests[0].Digest.Hex
}

// manifest verifies an index or the manifest of an image, and what it refers to.
func (v *verifier) manifest(d v1.Descriptor) {
	if d.MediaType != types.OCIImageIndex && d.MediaType != types.OCIManifestSchema1 {
		v.report("%s: got media type %q, want that of an index or manifest", d.Digest, d.MediaType)
		return
	}
	if d.Size > maxManifest {
		v.report("%s: got %d bytes, want at most %d", d.Digest, d.Size, maxManifest)
		return
	}
	if v.seen[d.Digest] || !v.blob(d) {
		return
	}
	name := blobName(d.Digest)
	data, err := v.read(name, maxManifest)
	if err != nil {
		v.problems = append(v.problems, err)
		return
	}
	if d.MediaType == types.OCIImageIndex {
		v.index(name, data)
		return
	}
	manifest, err := v1.ParseManifest(bytes.NewReader(data))
	if err != nil {
		v.report("%s: parse manifest: %w", name, err)
		return
	}
	for _, blob := range append(slices.Clone(manifest.Layers), manifest.Config) {
		if !v.seen[blob.Digest] {
			v.blob(blob)
		}
	}
}

// blob verifies size and SHA-256 of a blob and reports whether they equal the descriptor's.
func (v *verifier) blob(d v1.Descriptor) bool {
	v.seen[d.Digest] = true
	if d.Digest.Algorithm != "sha256" || len(d.Digest.Hex) != hex.EncodedLen(sha256.Size) {
		v.report("blob %s: want a SHA-256", d.Digest)
		return false
	}
	if len(v.seen) > maxBlobs {
		v.report("more than %d blobs", maxBlobs)
		return false
	}
	name := blobName(d.Digest)
	f, err := v.root.Open(name)
	if err != nil {
		v.problems = append(v.problems, err)
		return false
	}
	defer f.Close() //nolint:errcheck // only read
	hash := sha256.New()
	size, err := io.Copy(hash, f)
	if err != nil {
		v.report("read %s: %w", name, err)
		return false
	}
	if size != d.Size {
		v.report("%s: got %d bytes, want %d", name, size, d.Size)
		return false
	}
	if got := hex.EncodeToString(hash.Sum(nil)); got != d.Digest.Hex {
		v.report("%s: got SHA-256 %s", name, got)
		return false
	}
	return true
}

// findOthers reports files that nothing refers to.
func (v *verifier) findOthers(known []string) {
	err := fs.WalkDir(v.root.FS(), ".", func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		name, isBlob := strings.CutPrefix(path, blobDir+"/")
		if isBlob && v.seen[v1.Hash{Algorithm: "sha256", Hex: name}] || slices.Contains(known, path) {
			return nil
		}
		v.report("unexpected file %q", path)
		return nil
	})
	if err != nil {
		v.problems = append(v.problems, err)
	}
}
