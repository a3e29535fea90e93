package bill

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"time"

	"ironroot/internal/bounded"
	"ironroot/internal/newfile"
	"ironroot/release/provenance"
	"ironroot/release/spdx"
)

// Build describes the build of artefacts.
type Build struct {
	Version  string    // of this project
	Commit   string    // of the source; "" = unknown
	Modified bool      // the source has changes since the commit
	Created  time.Time // date of the documents
}

// source describes the source of an artefact.
func (b Build) source() string {
	switch {
	case b.Commit == "":
		return "built from a source without a known commit"
	case b.Modified:
		return "built from commit " + b.Commit + " with changes"
	default:
		return "built from commit " + b.Commit
	}
}

// Write writes a document and a statement of provenance next to an artefact. The dependencies of the build are the
// dependencies of the definition, the packages of the document, and the source. The statement is also about further
// files next to the artefact.
func (b Build) Write(artefact string, d *spdx.Document, definition provenance.Definition, further ...string) error {
	d.SetSource(b.source())
	document, err := d.Encode(b.Created, "ironroot-"+b.Version)
	if err != nil {
		return err
	}
	dependencies := append(slices.Clone(definition.Dependencies), packages(d)...)
	internal := maps.Clone(definition.Internal)
	if internal == nil {
		internal = map[string]any{}
	}
	if b.Commit != "" && !b.Modified {
		dependencies = append(dependencies, provenance.Resource{
			Name: "source", Digest: map[string]string{"gitCommit": b.Commit},
		})
	} else {
		internal["source"] = b.source()
	}
	definition.Dependencies, definition.Internal = dependencies, internal
	name := filepath.Base(artefact)
	sum := sha256.Sum256(document)
	subjects := []provenance.Resource{
		resource(name, d.SHA256()), resource(name+spdx.Suffix, hex.EncodeToString(sum[:])),
	}
	for _, path := range further {
		sum, err := SumFile(path)
		if err != nil {
			return err
		}
		subjects = append(subjects, resource(filepath.Base(path), sum))
	}
	statement, err := provenance.Encode(subjects, definition, b.Version)
	if err != nil {
		return err
	}
	if err := newfile.Write(artefact+spdx.Suffix, document); err != nil {
		return err
	}
	return newfile.Write(artefact+provenance.Suffix, statement)
}

// maxDocument limits a document that is included, in bytes.
const maxDocument = 64 << 20

// Include adds the document next to a file to the document of an artefact that contains the file. It returns the file
// as a dependency. A file without a document is added as it is.
func Include(d *spdx.Document, path string) (provenance.Resource, error) {
	sum, err := SumFile(path)
	if err != nil {
		return provenance.Resource{}, err
	}
	dependency := resource(filepath.Base(path), sum)
	text, err := bounded.ReadFile(path+spdx.Suffix, maxDocument)
	if errors.Is(err, fs.ErrNotExist) {
		d.Include(spdx.New(filepath.Base(path), "", sum, "OPERATING-SYSTEM"))
		return dependency, nil
	}
	if err != nil {
		return provenance.Resource{}, err
	}
	document, err := spdx.Decode(text)
	if err != nil {
		return provenance.Resource{}, fmt.Errorf("%s: %w", path+spdx.Suffix, err)
	}
	if got := document.SHA256(); got != sum {
		return provenance.Resource{}, fmt.Errorf("%s describes a file with SHA-256 %s, but %s has %s",
			path+spdx.Suffix, got, path, sum)
	}
	d.Include(document)
	return dependency, nil
}

// WriteLayout describes an OCI layout whose images have the given SHA-256, and contain files.
func (b Build) WriteLayout(path, sum string, files []string) error {
	d := spdx.New(filepath.Base(path), b.Version, sum, "CONTAINER")
	definition := provenance.Definition{Command: "layout", Parameters: map[string]any{}}
	for _, file := range files {
		dependency, err := Include(d, file)
		if err != nil {
			return err
		}
		definition.Dependencies = append(definition.Dependencies, dependency)
	}
	return b.Write(path, d, definition)
}

// SumFile returns the SHA-256 of a file in hex.
func SumFile(path string) (string, error) {
	f, err := os.Open(path)
	if err != nil {
		return "", err
	}
	defer f.Close() //nolint:errcheck // only read
	hash := sha256.New()
	if _, err := io.Copy(hash, f); err != nil {
		return "", err
	}
	return hex.EncodeToString(hash.Sum(nil)), nil
}

func resource(name, sum string) provenance.Resource {
	return provenance.Resource{Name: name, Digest: map[string]string{"sha256": sum}}
}

// packages returns the packages of a document that have a package URL.
func packages(d *spdx.Document) []provenance.Resource {
	var all []provenance.Resource
	for _, p := range d.Packages {
		if url := p.URL(); url != "" {
			all = append(all, provenance.Resource{URI: url, Digest: p.Digests()})
		}
	}
	return all
}
