package initramfs

import (
	"bytes"
	"context"
	"crypto/sha256"
	"debug/elf"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"

	"github.com/u-root/mkuimage/cpio"

	"ironroot/internal/newfile"
	"ironroot/release/bill"
	"ironroot/release/license"
	"ironroot/release/provenance"
	"ironroot/release/spdx"
)

// origin describes the source of a file of the initramfs.
type origin struct {
	file    string        // path of its origin on this machine, below the directory of unpacked packages; "" = another
	source  string        // path in the source package, for its licence; "" = the licence is known otherwise
	modules []bill.Module // of a program
	module  *Module       // of a kernel module
	own     bool          // it is a file of the operator
}

// note stores the origin of a file of the initramfs.
func (b *builder) note(guest string, o origin) {
	if b.origins == nil {
		b.origins = map[string]origin{}
	}
	b.origins[guest] = o
}

// describe writes the bills of materials of the kernel, the initramfs and the tarball.
func (b *builder) describe(ctx context.Context, image []byte, archive []byte, kernel Kernel) error {
	if b.Bill == nil {
		return nil
	}
	b.say("describing the contents")
	kernelPackages, err := bill.ReadPackages(b.archive, kernel.debs, kernel.Modules)
	if err != nil {
		return err
	}
	firmwarePackages, err := bill.ReadPackages(b.archive, b.firmwareDebs, b.firmwareRoot)
	if err != nil {
		return err
	}
	authorities, err := bill.ReadPackages(b.archive, b.authorityDebs, b.authorityRoot)
	if err != nil {
		return err
	}
	d := describer{
		b: b, files: spdx.New(b.Name+".initramfs", b.Bill.Version, sumOf(archive), "OPERATING-SYSTEM"),
		sources: []source{
			{kernel.Modules, kernelPackages}, {b.firmwareRoot, firmwarePackages}, {b.authorityRoot, authorities},
		},
		used:     map[*bill.Package]*usage{},
		licenses: loadLicenses(filepath.Join(b.CacheDir, "module-licenses.json")),
	}
	if err := d.initramfs(ctx); err != nil {
		return err
	}
	if err := d.licenses.save(); err != nil {
		return err
	}
	kernelDocument, err := d.kernel(ctx, image, kernel, kernelPackages)
	if err != nil {
		return err
	}
	tarball, err := os.ReadFile(b.report.Tarball)
	if err != nil {
		return err
	}
	definition, err := b.definition(ctx)
	if err != nil {
		return err
	}
	if err := b.Bill.Write(b.report.Kernel, kernelDocument, definition); err != nil {
		return err
	}
	if err := b.Bill.Write(b.report.Initramfs, d.files, definition); err != nil {
		return err
	}
	both := spdx.New(b.Name+".tar.gz", b.Bill.Version, sumOf(tarball), "ARCHIVE")
	both.Include(kernelDocument)
	both.Include(d.files)
	return b.Bill.Write(b.report.Tarball, both, definition)
}

// definition describes the build. Files of the operator are named without their directories, which differ between
// machines.
func (b *builder) definition(ctx context.Context) (provenance.Definition, error) {
	compiler, err := b.goTool(ctx, "env", "GOVERSION")
	if err != nil {
		return provenance.Definition{}, err
	}
	parameters := map[string]any{
		"architecture": b.Arch, "suite": b.archive.Suite(), "moduleGroups": b.ModuleGroups, "shell": b.Shell,
		"firmware": !b.NoFirmware,
	}
	if b.Kernel == "" {
		parameters["kernelPackage"] = b.Package
	}
	d := provenance.Definition{
		Command: "image", Parameters: parameters,
		Internal: map[string]any{"go": strings.TrimSpace(string(compiler))},
	}
	for name, paths := range map[string][]string{
		"kernel": {b.Kernel}, "managers": b.Managers, "managerRoots": b.ManagerRoots, "firmwareDirectory": {b.Firmware},
		"authorizedKeys": {b.AuthorizedKeys}, "rescueRoot": {b.RescueRoot}, "caFiles": b.CAFiles,
	} {
		var names []string
		for _, path := range paths {
			if path != "" {
				names = append(names, filepath.Base(path))
			}
		}
		if len(names) > 0 {
			parameters[name] = names
		}
	}
	if len(b.ManagerCalls) > 0 {
		parameters["managerCalls"] = b.ManagerCalls
	}
	if len(b.Files) > 0 {
		var guests []string
		for _, pair := range b.Files {
			_, guest, _ := strings.Cut(pair, ":")
			guests = append(guests, guest)
		}
		parameters["files"] = guests
	}
	return d, nil
}

func sumOf(data []byte) string {
	sum := sha256.Sum256(data)
	return hex.EncodeToString(sum[:])
}

// source is a directory with unpacked packages.
type source struct {
	root     string
	packages bill.Packages
}

// usage lists the files that an initramfs has of a package.
type usage struct {
	source   source
	files    []string // IDs
	licenses []license.Found
}

// describer describes the contents of an initramfs.
type describer struct {
	b        *builder
	files    *spdx.Document
	sources  []source
	used     map[*bill.Package]*usage
	order    []*bill.Package
	licenses *licenseCache
}

// initramfs adds all files and their packages.
func (d *describer) initramfs(ctx context.Context) error {
	own, err := license.OfModule(productModule, d.b.Dir)
	if err != nil {
		return err
	}
	for _, r := range d.b.packed {
		if r.Mode&cpio.S_IFMT != cpio.S_IFREG {
			continue
		}
		content, err := io.ReadAll(io.NewSectionReader(r, 0, int64(r.FileSize)))
		if err != nil {
			return fmt.Errorf("%s: %w", r.Name, err)
		}
		if err := d.file(ctx, r.Name, content, own); err != nil {
			return fmt.Errorf("describe %s: %w", r.Name, err)
		}
	}
	for _, one := range d.order {
		u := d.used[one]
		id, err := u.source.packages.Add(ctx, d.files, one, license.All(u.licenses))
		if err != nil {
			return err
		}
		for _, file := range u.files {
			d.files.Relate(file, "GENERATED_FROM", id)
		}
	}
	return nil
}

// file adds a file of the initramfs. own is the licence of files that the builder makes.
func (d *describer) file(ctx context.Context, name string, content []byte, own license.Found) error {
	from, known := d.b.origins[name]
	found, comment := license.Found{}, ""
	var err error
	switch {
	case from.own:
		comment = "added by the operator"
	case !known:
		found, comment = own, "made by the builder"
	case from.module != nil:
		found, err = d.licenses.of(from.module)
		comment = "the licence that the module names"
	}
	if err != nil {
		return err
	}
	one, src := d.packageOf(from.file)
	if one != nil && from.source != "" {
		copyright, err := src.packages.Copyright(ctx, one)
		if err != nil {
			return err
		}
		found = copyright.OfFile(from.source)
	}
	for _, l := range found.Licenses {
		d.files.AddLicense(l)
	}
	id := d.files.AddFile(name, content, found.Expression, comment)
	if one != nil {
		d.use(one, src, id, found)
	}
	return bill.AddModules(d.files, id, from.modules)
}

// packageOf returns the package that a file on this machine was unpacked from, nil if there is none.
func (d *describer) packageOf(file string) (*bill.Package, source) {
	if file == "" {
		return nil, source{}
	}
	for _, src := range d.sources {
		if src.root == "" {
			continue
		}
		if below, err := filepath.Rel(src.root, file); err == nil {
			if one := src.packages.Of(filepath.ToSlash(below)); one != nil {
				return one, src
			}
		}
	}
	return nil, source{}
}

func (d *describer) use(one *bill.Package, src source, file string, found license.Found) {
	u := d.used[one]
	if u == nil {
		u = &usage{source: src}
		d.used[one] = u
		d.order = append(d.order, one)
	}
	u.files, u.licenses = append(u.files, file), append(u.licenses, found)
}

// kernel returns the document of the kernel.
func (d *describer) kernel(ctx context.Context, image []byte, kernel Kernel, packages bill.Packages,
) (*spdx.Document, error) {
	document := spdx.New(d.b.Name+".kernel", d.b.Bill.Version, sumOf(image), "OPERATING-SYSTEM")
	below, err := filepath.Rel(kernel.Modules, kernel.Image)
	if err != nil {
		return document, nil //nolint:nilerr // a kernel of the operator, elsewhere
	}
	if one := packages.Of(filepath.ToSlash(below)); one != nil {
		id, err := packages.Add(ctx, document, one, license.Found{})
		if err != nil {
			return nil, err
		}
		document.Relate(document.Artefact(), "GENERATED_FROM", id)
	}
	return document, nil
}

// maxModinfo limits the section .modinfo of a module, in bytes.
const maxModinfo = 4 << 20

// licenseCache has the names of the licences of kernel modules by the SHA-256 of their files, because the modules are
// compressed.
type licenseCache struct {
	path    string
	names   map[string]string
	changed bool
}

// loadLicenses reads the cache. One that is damaged is empty.
func loadLicenses(path string) *licenseCache {
	c := &licenseCache{path: path, names: map[string]string{}}
	if text, err := os.ReadFile(path); err == nil && json.Unmarshal(text, &c.names) != nil {
		c.names = map[string]string{}
	}
	return c
}

func (c *licenseCache) save() error {
	if !c.changed {
		return nil
	}
	text, err := json.Marshal(c.names)
	if err != nil {
		return err
	}
	return newfile.Write(c.path, text)
}

// of returns the licence of a kernel module.
func (c *licenseCache) of(f *Module) (license.Found, error) {
	packed, err := os.ReadFile(f.path)
	if err != nil {
		return license.Found{}, err
	}
	sum := sumOf(packed)
	name, ok := c.names[sum]
	if !ok {
		image, err := f.image()
		if err != nil {
			return license.Found{}, err
		}
		if name, err = licenseName(image); err != nil {
			return license.Found{}, fmt.Errorf("%s: %w", f.path, err)
		}
		c.names[sum], c.changed = name, true
	}
	return license.OfKernelModule(name), nil
}

// licenseName returns the licence that a module names in its section .modinfo, "" if it names none.
func licenseName(image []byte) (string, error) {
	file, err := elf.NewFile(bytes.NewReader(image))
	if err != nil {
		return "", err
	}
	section := file.Section(".modinfo")
	if section == nil || section.Size > maxModinfo {
		return "", nil
	}
	data, err := section.Data()
	if err != nil {
		return "", err
	}
	for field := range bytes.SplitSeq(data, []byte{0}) {
		if name, found := bytes.CutPrefix(field, []byte("license=")); found {
			return string(name), nil
		}
	}
	return "", nil
}

// programModules returns the modules of a program. more are modules that Go has not stored in it, as PATH VERSION.
func (b *builder) programModules(ctx context.Context, program []byte, more []string) ([]bill.Module, error) {
	if b.Bill == nil {
		return nil, nil
	}
	environment, err := b.goTool(ctx, "env", "GOMODCACHE", "GOROOT")
	if err != nil {
		return nil, err
	}
	cache, root, _ := strings.Cut(strings.TrimSpace(string(environment)), "\n")
	dirs := map[string]string{productModule: b.Dir}
	for path, dir := range b.managerDirs {
		dirs[path] = dir
	}
	modules, err := bill.ReadModules(program, more, bill.Directories{Cache: cache, Root: root, Others: dirs})
	for i := range modules {
		if modules[i].Path == productModule {
			modules[i].Version = b.Bill.Version
		}
	}
	return modules, err
}
