package bill

import (
	"context"
	"fmt"
	"maps"
	"path/filepath"
	"slices"

	"ironroot/initramfs/debian"
	"ironroot/internal/bounded"
	"ironroot/release/license"
	"ironroot/release/provenance"
	"ironroot/release/spdx"
)

// Image describes an image that was built from files.
type Image struct {
	Path       string            // of the image
	Purpose    string            // as in SPDX
	Command    string            // that built it
	Parameters map[string]any    // of the command
	Parts      []string          // paths of the files that it contains, which can have documents next to them
	Debian     *debian.Used      // files of Debian packages that it contains, nil for none
	Added      map[string]string // paths of files of the operator that it contains, by their names in it
	Inputs     map[string]string // paths of further files that it was built from, by parameters; "" = not given
	Next       []string          // paths of files next to the image that are part of the result
}

// maxAdded limits a file of the operator, in bytes.
const maxAdded = 1 << 30

// WriteImage writes the bill of materials and the provenance of an image next to it. The contents of its parts are
// taken from the documents next to them, if there are any.
func (b Build) WriteImage(ctx context.Context, i Image) error {
	if err := b.writeImage(ctx, i); err != nil {
		return fmt.Errorf("describe %s: %w", i.Path, err)
	}
	return nil
}

func (b Build) writeImage(ctx context.Context, i Image) error {
	sum, err := SumFile(i.Path)
	if err != nil {
		return err
	}
	d := spdx.New(filepath.Base(i.Path), b.Version, sum, i.Purpose)
	definition := provenance.Definition{Command: i.Command, Parameters: maps.Clone(i.Parameters)}
	for name, path := range i.Added {
		content, err := bounded.ReadFile(path, maxAdded)
		if err != nil {
			return err
		}
		d.AddFile(name, content, "", "added by the operator")
	}
	if i.Debian != nil {
		definition.Parameters["suite"] = i.Debian.Archive.Suite()
		if err := addUsed(ctx, d, i.Debian); err != nil {
			return err
		}
	}
	for _, path := range i.Parts {
		dependency, err := Include(d, path)
		if err != nil {
			return err
		}
		definition.Dependencies = append(definition.Dependencies, dependency)
	}
	for _, name := range slices.Sorted(maps.Keys(i.Inputs)) {
		path := i.Inputs[name]
		if path == "" {
			continue
		}
		definition.Parameters[name] = filepath.Base(path)
		sum, err := SumFile(path)
		if err != nil {
			return err
		}
		definition.Dependencies = append(definition.Dependencies, resource(filepath.Base(path), sum))
	}
	return b.Write(i.Path, d, definition, i.Next...)
}

// addUsed adds files of Debian packages and these packages.
func addUsed(ctx context.Context, d *spdx.Document, used *debian.Used) error {
	packages, err := ReadPackages(used.Archive, used.Debs, "")
	if err != nil {
		return err
	}
	for _, file := range used.Files {
		one := packages.Of(file.Path)
		if one == nil {
			return fmt.Errorf("no package has %s", file.Path)
		}
		id, err := packages.Add(ctx, d, one, license.Found{})
		if err != nil {
			return err
		}
		d.Relate(d.AddFile(file.Name, file.Content, "", "/"+file.Path), "GENERATED_FROM", id)
	}
	return nil
}
