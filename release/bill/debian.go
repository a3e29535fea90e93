package bill

import (
	"context"
	"fmt"

	"ironroot/initramfs/debian"
	"ironroot/release/license"
	"ironroot/release/spdx"
)

// Packages are Debian packages that were unpacked.
type Packages struct {
	archive  *debian.Archive
	tree     string
	packages []*Package
}

// Package is a Debian package.
type Package struct {
	control   debian.Control
	deb       string
	tree      string
	copyright *license.Copyright
}

// ReadPackages reads the descriptions of packages. tree is the directory that they were unpacked to, "" = none.
func ReadPackages(archive *debian.Archive, debs []string, tree string) (Packages, error) {
	all := Packages{archive: archive, tree: tree}
	for _, deb := range debs {
		control, err := archive.ReadControl(deb)
		if err != nil {
			return Packages{}, err
		}
		all.packages = append(all.packages, &Package{control: control, deb: deb, tree: tree})
	}
	return all, nil
}

// Of returns the package that has a file, nil if there is none. The name is the path of the file in the package.
func (p Packages) Of(name string) *Package {
	for _, one := range p.packages {
		if one.control.Files[name] {
			return one
		}
	}
	return nil
}

// Copyright returns the copyright file of a package.
func (p Packages) Copyright(ctx context.Context, one *Package) (license.Copyright, error) {
	if one.copyright == nil {
		text, err := p.archive.Copyright(ctx, one.deb, one.control, one.tree)
		if err != nil {
			return license.Copyright{}, err
		}
		parsed := license.ParseCopyright(one.control.Source, text)
		one.copyright = &parsed
	}
	return *one.copyright, nil
}

// signed are packages whose copyright file describes only their signatures, with the licence of the signed program.
var signed = map[string]string{
	"grub-efi-amd64-signed": "GPL-3.0-or-later", "grub-efi-arm64-signed": "GPL-3.0-or-later",
}

// Add adds a package to a document and returns its ID. used is the licence of the files that the artefact has of it; if
// it is unknown, the licence of all files of the package is used.
func (p Packages) Add(ctx context.Context, d *spdx.Document, one *Package, used license.Found) (string, error) {
	comment := "the licence of the files that are in the artefact"
	if used.Expression == "" {
		comment = "the licences of all source files, except those of the packaging"
		copyright, err := p.Copyright(ctx, one)
		if err != nil {
			return "", err
		}
		used = copyright.OfPackage()
	}
	if program := signed[one.control.Name]; program != "" {
		comment = "the licence of the signed program; the copyright file describes its signature"
		used = license.Found{Expression: program}
	}
	for _, l := range used.Licenses {
		d.AddLicense(l)
	}
	c := one.control
	entry := spdx.Package{
		Name: c.Name, Version: c.Version, Supplier: "Organization: Debian", Declared: used.Expression,
		SourceInfo: fmt.Sprintf("binary package of the source package %s; %s has its copyright", c.Source,
			"/usr/share/doc/"+c.Name+"/copyright"),
	}
	if used.Expression != "" {
		entry.LicenseComments = comment
	}
	entry.Download = c.URL
	return d.AddPackage(entry, c.SHA256, spdx.URL("deb", "debian/"+c.Name, c.Version,
		[2]string{"arch", c.Arch}, [2]string{"distro", p.archive.Suite()})), nil
}
