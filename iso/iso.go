package iso

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"time"

	"ironroot/initramfs/debian"
	"ironroot/internal/bootfile"
)

// DefaultLabel is the volume label of an image if Options has none.
const DefaultLabel = "INSTALL_IMAGE"

// DefaultCmdline returns the kernel command line of an image if Options has none. It names the serial console that
// most machines of the architecture have.
func DefaultCmdline(arch string) string {
	serial := "ttyS0"
	if arch == "arm64" {
		serial = "ttyAMA0"
	}
	return "boot_method=vmedia console=tty0 console=" + serial + ",115200n8"
}

// Options describe the image to build.
type Options struct {
	Kernel   string         // path of a kernel: a bzImage for x86-64, or an image with an EFI stub for arm64
	Arch     string         // GOARCH of Kernel or UKI, which must not be of another one; "" = theirs
	Initrd   string         // path of an initramfs, plain or compressed
	UKI      string         // path of a unified kernel image, which replaces Kernel, Initrd and Cmdline
	Out      string         // path of the image to write
	Cmdline  string         // "" = the result of DefaultCmdline
	Label    string         // "" = DefaultLabel
	CacheDir string         // directory of fetched packages; "" = ironroot below the user's cache directory
	Debian   debian.Options // archive of the loaders' packages; its CacheDir is CacheDir
	Log      io.Writer      // gets progress and the sizes of the parts; nil = no output
}

// Report describes the image that was built.
type Report struct {
	Path    string
	Size    int64 // bytes
	Parts   []Part
	Cmdline string       // from the options or the default, "" with Options.UKI
	Label   string       // from the options or the default
	Debian  *debian.Used // the boot loaders, nil with Options.UKI
}

// Part is a part of the image.
type Part struct {
	Name string
	Size int64 // bytes
}

// epoch is the time stamp of all files of an image, so that equal inputs give equal bytes.
var epoch = time.Date(2020, 1, 1, 0, 0, 0, 0, time.UTC)

// Build writes the image. A file at Options.Out is always complete.
func Build(ctx context.Context, o Options) (Report, error) {
	o, err := o.complete()
	if err != nil {
		return Report{}, err
	}
	if o.UKI != "" {
		return inWorkspace(o, func(work string) (Report, error) { return buildUKI(ctx, o, work) })
	}
	if _, err := fmt.Fprintln(o.Log, "fetching boot loaders of Debian"); err != nil {
		return Report{}, err
	}
	o.Debian.CacheDir = o.CacheDir
	o.Debian.Progress = o.Log
	archive, err := debian.Open(o.Debian)
	if err != nil {
		return Report{}, fmt.Errorf("build ISO: %w", err)
	}
	loaders, err := fetchLoaders(ctx, archive, o.Arch)
	if err != nil {
		return Report{}, err
	}
	report, err := inWorkspace(o, func(work string) (Report, error) { return build(ctx, o, loaders, work) })
	report.Debian = loaders.used(archive)
	return report, err
}

// inWorkspace builds the image in a new directory, which it removes, and prints the report.
func inWorkspace(o Options, build func(work string) (Report, error)) (Report, error) {
	work, err := os.MkdirTemp(filepath.Dir(o.Out), ".iso-*") // in the directory of the result: /tmp can be too small
	if err != nil {
		return Report{}, fmt.Errorf("build ISO: %w", err)
	}
	defer os.RemoveAll(work) //nolint:errcheck // nothing is left of a build that went well
	report, err := build(work)
	if err != nil {
		return Report{}, fmt.Errorf("build ISO %s: %w", o.Out, err)
	}
	report.Cmdline, report.Label = o.Cmdline, o.Label
	return report, report.print(o.Log)
}

func (o Options) complete() (Options, error) {
	switch {
	case o.UKI != "" && (o.Kernel != "" || o.Initrd != "" || o.Cmdline != ""):
		return o, errors.New("build ISO: a unified kernel image contains kernel, initrd and command line already")
	case o.UKI == "" && (o.Kernel == "" || o.Initrd == "") || o.Out == "":
		return o, errors.New("build ISO: kernel, initrd and output file are required")
	}
	if o.UKI == "" {
		if err := o.completeKernel(); err != nil {
			return o, err
		}
	}
	if o.Label == "" {
		o.Label = DefaultLabel
	}
	if err := checkLabel(o.Label); err != nil {
		return o, err
	}
	if o.CacheDir == "" {
		cache, err := os.UserCacheDir()
		if err != nil {
			return o, fmt.Errorf("build ISO: %w", err)
		}
		o.CacheDir = filepath.Join(cache, "ironroot")
	}
	if o.Log == nil {
		o.Log = io.Discard
	}
	return o, nil
}

// completeKernel checks kernel, initramfs and command line, and sets the architecture and the command line.
func (o *Options) completeKernel() error {
	arch, err := bootfile.KernelArch(o.Kernel)
	if err != nil {
		return err
	}
	if o.Arch != "" && o.Arch != arch {
		return fmt.Errorf("kernel %s: is for %s, want %s", o.Kernel, arch, o.Arch)
	}
	o.Arch = arch
	if o.Cmdline == "" {
		o.Cmdline = DefaultCmdline(arch)
	}
	if err := bootfile.CheckInitrd(o.Initrd); err != nil {
		return err
	}
	return bootfile.CheckCmdline(o.Cmdline)
}

// build builds the image in the directory work and moves it to Options.Out.
func build(ctx context.Context, o Options, l loaders, work string) (Report, error) {
	esp, err := espImage(ctx, l)
	if err != nil {
		return Report{}, err
	}
	tree := filepath.Join(work, "tree")
	parts, err := fillTree(ctx, tree, o, l, esp)
	if err != nil {
		return Report{}, err
	}
	return finish(ctx, o, work, l.mbr, int64(len(esp)), parts)
}

// buildUKI does the same for an image that only UEFI firmware boots, without another boot loader.
func buildUKI(ctx context.Context, o Options, work string) (Report, error) {
	const largest = 1 << 30
	info, err := os.Stat(o.UKI)
	if err != nil {
		return Report{}, err
	}
	if info.Size() > largest {
		return Report{}, fmt.Errorf("unified kernel image %s: has %d bytes, want at most %d",
			o.UKI, info.Size(), largest)
	}
	image, err := os.ReadFile(o.UKI)
	if err != nil {
		return Report{}, err
	}
	arch, err := bootfile.UEFIArch(bytes.NewReader(image), int64(len(image)))
	if err != nil {
		return Report{}, fmt.Errorf("unified kernel image %s: %w", o.UKI, err)
	}
	if o.Arch != "" && o.Arch != arch {
		return Report{}, fmt.Errorf("unified kernel image %s: is for %s, want %s", o.UKI, arch, o.Arch)
	}
	if err := bootfile.CheckSum(o.UKI); err != nil {
		return Report{}, fmt.Errorf("unified kernel image: %w", err)
	}
	esp, err := ukiESP(ctx, arch, image)
	if err != nil {
		return Report{}, err
	}
	err = writeTree(filepath.Join(work, "tree"), map[string][]byte{
		".disk/info": []byte(o.Label + "\n"),
		espPath:      esp,
	})
	if err != nil {
		return Report{}, err
	}
	return finish(ctx, o, work, nil, int64(len(esp)), []Part{{Name: "unified kernel image", Size: int64(len(image))}})
}

// finish packs the tree in work into an image, makes it bootable from a disk with the code of a master boot record, or
// for UEFI only without it, and moves it to Options.Out.
func finish(ctx context.Context, o Options, work string, mbr []byte, espSize int64, parts []Part) (Report, error) {
	image := filepath.Join(work, "image")
	f, err := os.OpenFile(image, os.O_RDWR|os.O_CREATE|os.O_EXCL, 0o644)
	if err != nil {
		return Report{}, err
	}
	err = writeImage(f, filepath.Join(work, "tree"), o.Label, mbr != nil)
	if err == nil {
		err = correctRecords(f)
	}
	if err == nil {
		err = makeHybrid(f, mbr, espSize)
	}
	var size int64
	if err == nil {
		size, err = f.Seek(0, io.SeekEnd)
	}
	if err := errors.Join(err, f.Sync(), f.Close(), ctx.Err()); err != nil {
		return Report{}, err
	}
	if err := os.Rename(image, o.Out); err != nil {
		return Report{}, err
	}
	report := Report{Path: o.Out, Size: size}
	for _, p := range parts {
		size -= p.Size
	}
	report.Parts = append(parts, Part{Name: "file system", Size: size})
	return report, nil
}

// print writes the sizes of the parts.
func (r Report) print(w io.Writer) error {
	const mib = 1 << 20
	var text strings.Builder
	for _, p := range r.Parts {
		fmt.Fprintf(&text, "%8.2f MiB  %4.1f %%  %s\n",
			float64(p.Size)/mib, 100*float64(p.Size)/float64(r.Size), p.Name)
	}
	fmt.Fprintf(&text, "%8.2f MiB  %s\n", float64(r.Size)/mib, r.Path)
	_, err := io.WriteString(w, text.String())
	return err
}
