package uki

import (
	"context"
	"fmt"
	"path/filepath"

	"ironroot/release"
	"ironroot/release/bill"
	"ironroot/release/license"
	"ironroot/release/provenance"
	"ironroot/release/spdx"
)

// describe writes the bill of materials and the provenance of an image. What the kernel and the initramfs contain is
// taken from the documents next to them, if there are any.
func describe(ctx context.Context, o Options, base stub) error {
	sum, err := bill.SumFile(o.Out)
	if err != nil {
		return err
	}
	d := spdx.New(filepath.Base(o.Out), o.Bill.Version, sum, "OPERATING-SYSTEM")
	definition := provenance.Definition{Command: "uki", Parameters: map[string]any{"cmdline": o.Cmdline}}
	if err := addStub(ctx, d, base); err != nil {
		return err
	}
	if base.archive != nil {
		definition.Parameters["suite"] = base.archive.Suite()
	}
	for _, path := range append([]string{o.Kernel}, o.Initrds...) {
		dependency, err := bill.Include(d, path)
		if err != nil {
			return err
		}
		definition.Dependencies = append(definition.Dependencies, dependency)
	}
	for name, path := range map[string]string{"stub": o.Stub, "osRelease": o.OSRelease, "certificate": o.Cert} {
		if path == "" {
			continue
		}
		definition.Parameters[name] = filepath.Base(path)
		sum, err := bill.SumFile(path)
		if err != nil {
			return err
		}
		definition.Dependencies = append(definition.Dependencies, provenance.Resource{
			Name: filepath.Base(path), Digest: map[string]string{"sha256": sum},
		})
	}
	return o.Bill.Write(o.Out, d, definition, o.Out+release.PredictionSuffix)
}

// addStub adds the stub and its package.
func addStub(ctx context.Context, d *spdx.Document, base stub) error {
	if base.archive == nil {
		d.AddFile("stub", base.content, "", "added by the operator")
		return nil
	}
	packages, err := bill.ReadPackages(base.archive, []string{base.deb}, "")
	if err != nil {
		return err
	}
	one := packages.Of(base.name)
	if one == nil {
		return fmt.Errorf("package %s has no %s", base.deb, base.name)
	}
	id, err := packages.Add(ctx, d, one, license.Found{})
	if err != nil {
		return err
	}
	d.Relate(d.AddFile("stub", base.content, "", "/"+base.name), "GENERATED_FROM", id)
	return nil
}
