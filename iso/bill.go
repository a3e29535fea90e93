package iso

import (
	"context"
	"fmt"
	"path/filepath"

	"ironroot/initramfs/debian"
	"ironroot/release/bill"
	"ironroot/release/license"
	"ironroot/release/provenance"
	"ironroot/release/spdx"
)

// describe writes the bill of materials and the provenance of an image. What the kernel and the initramfs contain is
// taken from the documents next to them, if there are any.
func describe(ctx context.Context, o Options, l loaders, archive *debian.Archive) error {
	d, err := newDocument(o)
	if err != nil {
		return err
	}
	packages, err := bill.ReadPackages(archive, l.debs, "")
	if err != nil {
		return err
	}
	for _, file := range l.files() {
		one := packages.Of(file.path)
		if one == nil {
			return fmt.Errorf("no package has %s", file.path)
		}
		id, err := packages.Add(ctx, d, one, license.Found{})
		if err != nil {
			return err
		}
		d.Relate(d.AddFile(file.name, *file.content, "", "/"+file.path), "GENERATED_FROM", id)
	}
	definition := provenance.Definition{
		Command: "iso", Parameters: map[string]any{"cmdline": o.Cmdline, "label": o.Label, "suite": archive.Suite()},
	}
	return write(o, d, definition, o.Kernel, o.Initrd)
}

// describeUKI does the same for an image that contains a unified kernel image.
func describeUKI(o Options) error {
	d, err := newDocument(o)
	if err != nil {
		return err
	}
	definition := provenance.Definition{Command: "iso", Parameters: map[string]any{"label": o.Label}}
	return write(o, d, definition, o.UKI)
}

func newDocument(o Options) (*spdx.Document, error) {
	sum, err := bill.SumFile(o.Out)
	if err != nil {
		return nil, err
	}
	return spdx.New(filepath.Base(o.Out), o.Bill.Version, sum, "INSTALL"), nil
}

// write adds the files that the image was built from, and writes the bill of materials and the provenance.
func write(o Options, d *spdx.Document, definition provenance.Definition, files ...string) error {
	for _, path := range files {
		dependency, err := bill.Include(d, path)
		if err != nil {
			return err
		}
		definition.Dependencies = append(definition.Dependencies, dependency)
	}
	return o.Bill.Write(o.Out, d, definition)
}
