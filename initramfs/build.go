package initramfs

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/u-root/mkuimage/cpio"

	"ironroot/initramfs/debian"
	"ironroot/initramfs/modules"
	"ironroot/internal/bootfile"
	"ironroot/release/bill"
	"ironroot/uinit/boot/layout"
	"ironroot/uinit/kmod"
)

// builder is the state of a build.
type builder struct {
	Options
	archive *debian.Archive
	start   time.Time
	report  Report
	packed  []cpio.Record // files of the initramfs

	// For the bills of materials.
	origins       map[string]origin // of files of the initramfs
	firmwareDebs  []string          // packages with firmware
	firmwareRoot  string            // directory that they were unpacked to
	authorityDebs []string          // the package with certificate authorities
	authorityRoot string            // directory that it was unpacked to
	managerDirs   map[string]string // directories of modules with managers, by path

	managers []string // names of the executables that are managers, also of those in manager roots
}

// Build writes NAME.kernel, NAME.initramfs and NAME.tar.gz, each with a .sha256 file, into the directory o.Out.
func Build(ctx context.Context, o Options) (Report, error) {
	if err := o.setDefaults(); err != nil {
		return Report{}, fmt.Errorf("build image: %w", err)
	}
	b := &builder{Options: o, start: time.Now()}
	o.Debian.CacheDir, o.Debian.Progress = o.CacheDir, b
	archive, err := debian.Open(o.Debian)
	if err != nil {
		return Report{}, fmt.Errorf("build image: %w", err)
	}
	b.archive = archive
	if err := b.build(ctx); err != nil {
		return Report{}, fmt.Errorf("build image %s: %w", o.Name, err)
	}
	return b.report, nil
}

func (b *builder) build(ctx context.Context) error {
	kernel, err := b.kernel(ctx)
	if err != nil {
		return err
	}
	arch, _, err := bootfile.PackedKernelArch(kernel.Image)
	if err != nil {
		return err
	}
	if arch != b.Arch {
		return fmt.Errorf("kernel %s: is for %s, want %s", kernel.Image, arch, b.Arch)
	}
	image, err := os.ReadFile(kernel.Image)
	if err != nil {
		return err
	}
	programs, deltas, err := b.programs(ctx)
	if err != nil {
		return err
	}
	drivers, cards, err := b.drivers(ctx, kernel)
	if err != nil {
		return err
	}
	programs = append(programs, cards...) // not compressed yet
	roots, err := b.roots(ctx)
	if err != nil {
		return err
	}
	rescue, err := b.rescueRoot(ctx)
	if err != nil {
		return err
	}
	roots = append(roots, rescue...)
	calls, err := b.managerCalls()
	if err != nil {
		return err
	}
	programs = append(programs, calls...)
	// All but the programs are compressed already.
	archive, err := b.join(programs, slices.Concat(deltas, drivers, roots))
	if err != nil {
		return err
	}
	if err := b.write(image, archive); err != nil {
		return err
	}
	if err := b.describe(ctx, image, archive, kernel); err != nil {
		return fmt.Errorf("bill of materials: %w", err)
	}
	b.printReport()
	return nil
}

func (b *builder) kernel(ctx context.Context) (Kernel, error) {
	if b.Kernel != "" {
		return Kernel{Image: b.Kernel, Modules: b.Modules, Config: b.KernelConfig}, nil
	}
	pkg := b.Package
	if !strings.Contains(pkg, ":") {
		pkg += ":" + b.Arch
	}
	kernel, err := FetchKernel(ctx, b.archive, b.CacheDir, pkg, b.say)
	b.report.KernelRelease = kernel.Release
	return kernel, err
}

// programs returns directories, /init, the shell's links, extra files and the certificate authorities. The deltas, of
// the shell, are compressed already.
func (b *builder) programs(ctx context.Context) (records, deltas []cpio.Record, err error) {
	b.say("building the agent")
	agent, err := b.init(ctx)
	if err != nil {
		return nil, nil, err
	}
	records = append(skeleton(), cpio.StaticFile("init", string(agent), 0o755))
	b.count("agent", 1, int64(len(agent)))
	agentModules, err := b.programModules(ctx, agent, nil)
	if err != nil {
		return nil, nil, err
	}
	b.note("init", origin{modules: agentModules})
	if b.Shell {
		var links []cpio.Record
		if links, deltas, err = b.shell(ctx, agent); err != nil {
			return nil, nil, err
		}
		records = append(records, links...)
	}
	for _, pair := range b.Files {
		extra, err := extraFiles(pair)
		if err != nil {
			return nil, nil, err
		}
		records = append(records, extra...)
		for _, r := range extra {
			b.note(r.Name, origin{own: true})
		}
		b.count("extra files", len(extra), sizeOf(extra))
	}
	keys, err := b.authorizedKeys()
	if err != nil {
		return nil, nil, err
	}
	records = append(records, keys...)
	authorities, err := b.authorities(ctx, records)
	if err != nil {
		return nil, nil, err
	}
	records = append(records, authorities...)
	if b.managers, err = checkManagers(recordFiles(records), b.Arch); err != nil {
		return nil, nil, fmt.Errorf("extra file: %w", err)
	}
	return records, deltas, nil
}

// skeleton returns the directories, devices and files that exist before file systems are mounted.
func skeleton() []cpio.Record {
	var records []cpio.Record
	for _, name := range []string{
		"bbin", "bin", "dev", "etc", "etc/ironic-python-agent", "etc/ironic-python-agent.d", "etc/ironroot", "lib",
		"mnt", "proc", "root", "run", "sbin", "sys", "tmp", "usr", "usr/lib", "usr/lib/ironroot",
		managersDir, "var", "var/log",
	} {
		records = append(records, cpio.Directory(name, 0o755))
	}
	return append(records,
		cpio.CharDev("dev/console", 0o600, 5, 1),
		cpio.CharDev("dev/null", 0o666, 1, 3),
		cpio.StaticFile("etc/passwd", "root:x:0:0:root:/root:/bbin/gosh\n", 0o644),
		cpio.StaticFile("etc/group", "root:x:0:\n", 0o644),
		cpio.StaticFile("etc/hosts", "127.0.0.1 localhost\n::1 localhost\n", 0o644),
	)
}

// drivers returns the modules, their index and their firmware, which are compressed already, and the file with the
// names of their network cards, which is not.
func (b *builder) drivers(ctx context.Context, kernel Kernel) (records, cards []cpio.Record, err error) {
	if kernel.Modules == "" || slices.Equal(b.ModuleGroups, []string{"none"}) {
		return nil, nil, nil
	}
	selection, err := modules.Select(b.ModuleGroups)
	if err != nil {
		return nil, nil, err
	}
	b.say("reading modules")
	files, err := ListModules(ctx, kernel.Modules)
	if err != nil {
		return nil, nil, err
	}
	if b.report.KernelRelease, err = releaseOf(files, kernel); err != nil {
		return nil, nil, err
	}
	chosen := choose(files, selection)
	b.report.Modules = len(chosen)
	b.say("packing %d of %d modules", len(chosen), len(files))
	packed, err := b.packModules(ctx, kernel, chosen)
	if err != nil {
		return nil, nil, err
	}
	dir := strings.TrimPrefix(kmod.Dir(b.report.KernelRelease), "/")
	records = []cpio.Record{cpio.Directory(filepath.Dir(dir), 0o755), cpio.Directory(dir, 0o755)}
	index := make([]*kmod.Module, len(chosen))
	for i, f := range chosen {
		index[i] = f.Info
		records = append(records,
			cpio.StaticFile(filepath.Join(dir, f.Info.Name+packed[i].suffix), string(packed[i].data), 0o644))
		b.note(filepath.Join(dir, f.Info.Name+packed[i].suffix), origin{file: f.path, module: f})
		b.countPacked("modules: "+groupOf(f.Tree), 1, f.Info.Size, int64(len(packed[i].data)))
	}
	firmware, err := b.firmware(ctx, kernel, index)
	if err != nil {
		return nil, nil, err
	}
	var text bytes.Buffer
	if err := kmod.Write(&text, index); err != nil {
		return nil, nil, err
	}
	small := pack(text.Bytes())
	records = append(records, cpio.StaticFile(filepath.Join(dir, kmod.IndexFile), string(small), 0o644))
	b.countPacked("module index", 1, int64(text.Len()), int64(len(small)))
	others, err := b.others(files, chosen, dir)
	if err != nil {
		return nil, nil, err
	}
	records = append(records, others)
	names, err := cardNames(index)
	if err != nil {
		return nil, nil, err
	}
	// The names are data of the module u-root, whose license applies to them.
	b.note(names.Name, origin{modules: slices.DeleteFunc(slices.Clone(b.origins["init"].modules),
		func(m bill.Module) bool { return m.Path != "github.com/u-root/u-root" })})
	b.count("names of network cards", 1, int64(names.FileSize))
	return append(records, firmware...), []cpio.Record{names}, nil
}

// others returns the index of the drivers of network adapters that were not chosen. With it the ramdisk can name a
// missing driver.
func (b *builder) others(files, chosen []*Module, dir string) (cpio.Record, error) {
	var index []*kmod.Module
	for _, f := range files {
		if kmod.IsOther(f.Info) && !slices.Contains(chosen, f) {
			index = append(index, kmod.Other(f.Info))
		}
	}
	var text bytes.Buffer
	if err := kmod.Write(&text, index); err != nil {
		return cpio.Record{}, err
	}
	small := pack(text.Bytes())
	b.countPacked("index of other drivers", 1, int64(text.Len()), int64(len(small)))
	return cpio.StaticFile(filepath.Join(dir, kmod.OthersFile), string(small), 0o644), nil
}

// releaseOf returns the kernel's release: its package's, or otherwise the one that a module was built for.
func releaseOf(files []*Module, kernel Kernel) (string, error) {
	if kernel.Release != "" {
		return kernel.Release, nil
	}
	if len(files) == 0 {
		return "", fmt.Errorf("no modules below %s", kernel.Modules)
	}
	if release := files[0].Info.Release; release != "" {
		return release, nil
	}
	return "", fmt.Errorf("%s does not tell its kernel's release", files[0].path)
}

// groupOf returns the name of the report's part that a module belongs to.
func groupOf(tree string) string {
	parts := strings.Split(tree, "/")
	return strings.Join(parts[:min(2, len(parts)-1)], "/")
}

// join returns the initramfs with the programs, the drivers and the marker.
func (b *builder) join(programs, drivers []cpio.Record) ([]byte, error) {
	unpacked := pagesOf(programs) + pagesOf(drivers)
	about := layout.About{Name: b.Name, Unpacked: unpacked, Kernel: b.report.KernelRelease}
	programs = append(programs, cpio.StaticFile(layout.AboutFile, about.String(), 0o644))
	drivers = append(drivers, cpio.StaticFile(layout.MarkerFile, "", 0o644))
	b.packed = slices.Concat(programs, drivers)
	first, err := archiveOf(programs)
	if err != nil {
		return nil, err
	}
	b.say("compressing programs")
	compressed := align(pack(first))
	for i := range b.report.Parts {
		if p := &b.report.Parts[i]; p.Store == 0 {
			p.Store = int64(float64(p.Raw) * float64(len(compressed)) / float64(len(first)))
		}
	}
	last, err := archiveOf(drivers)
	if err != nil {
		return nil, err
	}
	return append(compressed, last...), nil
}

func (b *builder) say(format string, args ...any) {
	_, _ = fmt.Fprintf(b.Progress, "%6.1fs  %s\n", time.Since(b.start).Seconds(), fmt.Sprintf(format, args...))
}

// Write implements [io.Writer] for the messages of the archive.
func (b *builder) Write(message []byte) (int, error) {
	b.say("%s", bytes.TrimSuffix(message, []byte("\n")))
	return len(message), nil
}

func (b *builder) count(name string, files int, raw int64) { b.countPacked(name, files, raw, 0) }

func (b *builder) countPacked(name string, files int, raw, store int64) {
	i := slices.IndexFunc(b.report.Parts, func(p Part) bool { return p.Name == name })
	if i < 0 {
		b.report.Parts = append(b.report.Parts, Part{Name: name})
		i = len(b.report.Parts) - 1
	}
	p := &b.report.Parts[i]
	p.Files, p.Raw, p.Store = p.Files+files, p.Raw+raw, p.Store+store
}

func (o *Options) setDefaults() error {
	set := func(field *string, value string) {
		if *field == "" {
			*field = value
		}
	}
	set(&o.Arch, "amd64")
	set(&o.Out, "build")
	set(&o.Name, "ipa-ironroot-"+o.Arch)
	set(&o.Init, productInit)
	set(&o.Dir, ".")
	set(&o.Package, "linux-image-"+o.Arch)
	if o.ModuleGroups == nil {
		o.ModuleGroups = []string{"server"}
	}
	if (len(o.ManagerRoots) > 0 || o.RescueRoot != "") && !slices.Equal(o.ModuleGroups, []string{"none"}) {
		o.ModuleGroups = append(slices.Clone(o.ModuleGroups), rootGroup)
	}
	if o.Progress == nil {
		o.Progress = io.Discard
	}
	if o.Kernel == "" && o.Modules != "" {
		return fmt.Errorf("modules %s without their kernel: name both", o.Modules)
	}
	if o.CacheDir == "" {
		cache, err := os.UserCacheDir()
		if err != nil {
			return err
		}
		o.CacheDir = filepath.Join(cache, "ironroot")
	}
	return os.MkdirAll(o.CacheDir, 0o755)
}
