package uki

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/u-root/mkuimage/cpio"

	"ironroot/agent/config"
	"ironroot/initramfs/debian"
	"ironroot/internal/bootfile"
	"ironroot/internal/bounded"
	"ironroot/uinit/boot/layout"
)

// Names of sections (UAPI Group Specifications, UKI).
const (
	linuxSection   = ".linux"
	osrelSection   = ".osrel"
	cmdlineSection = ".cmdline"
	initrdSection  = ".initrd"
	unameSection   = ".uname"
	sbatSection    = ".sbat"
)

// PredictionSuffix is the end of the name of the file with the predicted PCR values, next to the image.
const PredictionSuffix = ".pcr.json"

// maxOSRelease limits the size of a file with a description of the image, in bytes.
const maxOSRelease = 64 << 10

// Options describe the image to build.
type Options struct {
	Kernel    string   // path of a kernel with an EFI stub
	Initrds   []string // paths of the parts of the initramfs, in order
	Out       string   // path of the image to write
	Cmdline   string   // kernel command line
	OSRelease string   // path of a description of the image (os-release(5)); "" = Version
	Version   string   // version in the description, if OSRelease is ""
	Stub      string   // path of a stub; "" = the stub in Debian's package systemd-boot-efi

	// Exactly one of these is set.
	Key         string // path of an RSA key
	SignCommand string // command for /bin/sh that signs: see docs/uki.md
	Unsigned    bool

	Cert     string         // path of the certificate of the key
	CacheDir string         // directory of fetched packages; "" = ironroot below the user's cache directory
	Debian   debian.Options // archive of the stub's package; its CacheDir is CacheDir
	Log      io.Writer      // gets progress and the sizes of the parts; nil = no output
}

// Report describes the image that was built.
type Report struct {
	Path   string
	Arch   string // GOARCH
	Size   int64  // bytes
	Parts  []Part
	Debian *debian.Used // the stub, nil if Options.Stub names one
	Prediction
}

// Part is a section of the image.
type Part struct {
	Name string
	Size int64 // bytes
}

// Build writes the image, and the predicted PCR values next to it. Both files are always complete.
func Build(ctx context.Context, o Options) (Report, error) {
	report, err := build(ctx, o)
	if err != nil {
		return Report{}, fmt.Errorf("build unified kernel image: %w", err)
	}
	if o.Log == nil {
		return report, nil
	}
	return report, report.print(o.Log)
}

func build(ctx context.Context, o Options) (Report, error) {
	if o.Kernel == "" || len(o.Initrds) == 0 || o.Out == "" {
		return Report{}, errors.New("kernel, initrd and output file are required")
	}
	if err := checkCmdline(o.Cmdline); err != nil {
		return Report{}, err
	}
	signer, err := newSigner(ctx, o)
	if err != nil {
		return Report{}, err
	}
	sections, k, err := readSections(o)
	if err != nil {
		return Report{}, err
	}
	stub, used, err := readStub(ctx, o, k.arch)
	if err != nil {
		return Report{}, err
	}
	if arch, err := bootfile.UEFIArch(bytes.NewReader(stub), int64(len(stub))); err != nil {
		return Report{}, fmt.Errorf("stub: %w", err)
	} else if arch != k.arch {
		return Report{}, fmt.Errorf("stub: is for %s, want %s like the kernel", arch, k.arch)
	}
	unsigned, measured, err := assemble(stub, k, sections)
	if err != nil {
		return Report{}, err
	}
	signed, err := signer.sign(unsigned)
	if err != nil {
		return Report{}, err
	}
	report := Report{Path: o.Out, Arch: k.arch, Size: int64(len(signed)), Debian: used}
	if report.Prediction, err = predict(signed, measured); err != nil {
		return Report{}, err
	}
	for _, s := range sections {
		report.Parts = append(report.Parts, Part{s.name, int64(len(s.content))})
	}
	values, err := report.encode()
	if err != nil {
		return Report{}, err
	}
	prediction := file{o.Out + PredictionSuffix, values}
	return report, writeFiles(ctx, prediction, file{o.Out, signed})
}

// checkCmdline checks the command line of an image. The stub ignores arguments of the firmware only if there is one.
func checkCmdline(line string) error {
	if strings.TrimSpace(line) == "" {
		return errors.New("kernel command line is empty")
	}
	if err := bootfile.CheckCmdline(line + endOfParameters); err != nil {
		return err
	}
	if slices.Contains(strings.Fields(line), "--") {
		return fmt.Errorf("kernel command line %q contains --, behind which the kernel ignores parameters", line)
	}
	if err := config.CheckSigned(line); err != nil {
		return fmt.Errorf("kernel command line: the agent rejects it: %w", err)
	}
	return nil
}

// endOfParameters makes the kernel pass everything that follows it to init, which ignores its arguments.
const endOfParameters = " --"

// readSections reads the kernel, the initramfs and the description, and returns the sections of the image in the order
// of ukify, without .sbat.
func readSections(o Options) ([]section, kernel, error) {
	description, err := osRelease(o)
	if err != nil {
		return nil, kernel{}, err
	}
	linux, err := bounded.ReadFile(o.Kernel, maxImage)
	if err != nil {
		return nil, kernel{}, fmt.Errorf("kernel: %w", err)
	}
	k, err := parseKernel(linux)
	if err != nil {
		return nil, kernel{}, fmt.Errorf("kernel %s: %w", o.Kernel, err)
	}
	if err := bootfile.CheckSum(o.Kernel); err != nil {
		return nil, kernel{}, fmt.Errorf("kernel: %w", err)
	}
	initrd, err := joinInitrds(o.Initrds, o.Cmdline)
	if err != nil {
		return nil, kernel{}, err
	}
	sections := []section{{osrelSection, description}, {cmdlineSection, []byte(o.Cmdline + endOfParameters)}}
	if k.release != "" {
		sections = append(sections, section{unameSection, []byte(k.release)})
	}
	return append(sections, section{linuxSection, linux}, section{initrdSection, initrd}), k, nil
}

// osRelease returns the description of the image (os-release(5)).
func osRelease(o Options) ([]byte, error) {
	if o.OSRelease == "" {
		return fmt.Appendf(nil, "ID=ironroot\nNAME=ironroot\nPRETTY_NAME=\"ironroot %s\"\nVERSION_ID=%[1]s\n",
			o.Version), nil
	}
	data, err := bounded.ReadFile(o.OSRelease, maxOSRelease)
	if err == nil && len(bytes.TrimSpace(data)) == 0 {
		err = fmt.Errorf("%s: is empty", o.OSRelease)
	}
	if err != nil {
		return nil, fmt.Errorf("os-release: %w", err)
	}
	return data, nil
}

// archiveAlignment is the alignment of an archive in an initramfs (Linux, Documentation/driver-api/early-userspace/
// buffer-format.rst).
const archiveAlignment = 4

// joinInitrds returns the initramfs: an archive with the command line, and then the files.
func joinInitrds(paths []string, cmdline string) ([]byte, error) {
	joined, err := signedArchive(cmdline)
	if err != nil {
		return nil, err
	}
	for _, path := range paths {
		if err := bootfile.CheckInitrd(path); err != nil {
			return nil, err
		}
		data, err := bounded.ReadFile(path, maxImage)
		if err != nil {
			return nil, fmt.Errorf("initrd: %w", err)
		}
		for len(joined)%archiveAlignment != 0 {
			joined = append(joined, 0)
		}
		joined = append(joined, data...)
	}
	return joined, nil
}

// signedArchive returns the archive from which PID 1 learns the command line that was signed. It is the first one of
// the initramfs, so that it is unpacked even if memory is too small for the others.
func signedArchive(cmdline string) ([]byte, error) {
	var out bytes.Buffer
	w := cpio.Newc.Writer(&out)
	records := []cpio.Record{cpio.StaticFile(layout.SignedCmdline, cmdline, 0o444)}
	for dir := filepath.Dir(layout.SignedCmdline); dir != "."; dir = filepath.Dir(dir) {
		records = slices.Insert(records, 0, cpio.Directory(dir, 0o755))
	}
	for _, record := range records {
		if err := w.WriteRecord(record); err != nil {
			return nil, err
		}
	}
	if err := cpio.WriteTrailer(w); err != nil {
		return nil, err
	}
	return out.Bytes(), nil
}

// assemble adds the sections to the stub. It returns the unsigned image, and its sections that the stub measures.
func assemble(stub []byte, k kernel, sections []section) (unsigned []byte, measured []section, err error) {
	base, err := parseImage(stub)
	if err != nil {
		return nil, nil, fmt.Errorf("stub: %w", err)
	}
	if base.find(linuxSection) >= 0 {
		return nil, nil, errors.New("stub: contains a kernel already")
	}
	sbat, err := mergeSBAT(base.content(sbatSection), k.sbat, []byte(sbatHeader+"\n"+uefiRow))
	if err != nil {
		return nil, nil, err
	}
	all := append(slices.Clone(sections), section{sbatSection, sbat})
	unsigned, err = base.withSections(all, base.isNXCompatible() && k.nx)
	if err != nil {
		return nil, nil, fmt.Errorf("stub: %w", err)
	}
	return unsigned, all, nil
}

// print writes the sizes of the sections.
func (r Report) print(w io.Writer) error {
	const mib = 1 << 20
	var text strings.Builder
	for _, p := range r.Parts {
		fmt.Fprintf(&text, "%8.2f MiB  %s\n", float64(p.Size)/mib, p.Name)
	}
	fmt.Fprintf(&text, "%8.2f MiB  %s (%s)\n", float64(r.Size)/mib, r.Path, r.Arch)
	fmt.Fprintf(&text, "PCR 11 (sha256) %s\n", r.PCR11["sha256"][0].Hash)
	_, err := io.WriteString(w, text.String())
	return err
}

// file is a file to write.
type file struct {
	path    string
	content []byte
}

// writeFiles writes files. It replaces the existing ones only when all new ones are complete.
func writeFiles(ctx context.Context, files ...file) (err error) {
	var partial []string
	defer func() {
		for _, name := range partial {
			err = errors.Join(err, os.Remove(name))
		}
	}()
	for _, f := range files {
		name, err := writePartial(f)
		if name != "" {
			partial = append(partial, name)
		}
		if err != nil {
			return err
		}
	}
	if err := ctx.Err(); err != nil {
		return err
	}
	for _, f := range files {
		if err := os.Rename(partial[0], f.path); err != nil {
			return err
		}
		partial = partial[1:]
	}
	return nil
}

// writePartial writes a file in the directory of f, and returns its name if it exists.
func writePartial(f file) (name string, err error) {
	out, err := os.CreateTemp(filepath.Dir(f.path), ".uki-*")
	if err != nil {
		return "", err
	}
	_, err = out.Write(f.content)
	return out.Name(), errors.Join(err, out.Chmod(0o644), out.Sync(), out.Close())
}
