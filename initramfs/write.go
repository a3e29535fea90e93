package initramfs

import (
	"archive/tar"
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"os"
	"path/filepath"
	"sort"
	"strings"
	"time"

	"github.com/klauspost/compress/gzip"

	"ironroot/internal/newfile"
)

// write writes the kernel, the initramfs, a tarball of both, and a checksum file for each.
func (b *builder) write(kernel, archive []byte) error {
	if err := os.MkdirAll(b.Out, 0o755); err != nil {
		return err
	}
	path := func(suffix string) string { return filepath.Join(b.Out, b.Name+suffix) }
	var date time.Time
	if b.Bill != nil {
		date = b.Bill.Created
	}
	tarball, err := tarballOf(date, []string{b.Name + ".kernel", b.Name + ".initramfs"}, [][]byte{kernel, archive})
	if err != nil {
		return err
	}
	b.report.Kernel, b.report.Initramfs, b.report.Tarball = path(".kernel"), path(".initramfs"), path(".tar.gz")
	b.report.KernelSize, b.report.InitramfsSize = int64(len(kernel)), int64(len(archive))
	for _, file := range []struct {
		path string
		data []byte
	}{{b.report.Kernel, kernel}, {b.report.Initramfs, archive}, {b.report.Tarball, tarball}} {
		if err := newfile.Write(file.path, file.data); err != nil {
			return err
		}
		// The format of sha256sum.
		sum := sha256.Sum256(file.data)
		line := fmt.Sprintf("%s  %s\n", hex.EncodeToString(sum[:]), filepath.Base(file.path))
		if err := newfile.Write(file.path+".sha256", []byte(line)); err != nil {
			return err
		}
	}
	return nil
}

// tarballOf packs files at top level with a date, zero for 1970. Ironic replaces its copy of a file only by a newer
// one. It uses the fastest compression, because kernel and initramfs are compressed.
func tarballOf(date time.Time, names []string, contents [][]byte) ([]byte, error) {
	var out bytes.Buffer
	z, err := gzip.NewWriterLevel(&out, gzip.BestSpeed)
	if err != nil {
		return nil, err
	}
	w := tar.NewWriter(z)
	for i, name := range names {
		header := &tar.Header{
			Name: name, Mode: 0o644, Size: int64(len(contents[i])), ModTime: date, Format: tar.FormatUSTAR,
		}
		if err := w.WriteHeader(header); err != nil {
			return nil, err
		}
		if _, err := w.Write(contents[i]); err != nil {
			return nil, err
		}
	}
	if err := w.Close(); err != nil {
		return nil, err
	}
	if err := z.Close(); err != nil {
		return nil, err
	}
	return out.Bytes(), nil
}

// printReport prints the size of each part of the image.
func (b *builder) printReport() {
	parts := append([]Part(nil), b.report.Parts...)
	sort.SliceStable(parts, func(i, j int) bool { return parts[i].Store > parts[j].Store })
	_, _ = fmt.Fprintf(b.Progress, "\n%-34s %6s %10s %10s\n", "in "+b.Name+".initramfs", "files", "unpacked", "stored")
	var small Part
	for _, p := range parts {
		if p.Store < 64<<10 && strings.HasPrefix(p.Name, "modules: ") {
			small.Files, small.Raw, small.Store = small.Files+p.Files, small.Raw+p.Raw, small.Store+p.Store
			continue
		}
		b.printPart(p)
	}
	if small.Files > 0 {
		small.Name = "modules: others"
		b.printPart(small)
	}
	_, _ = fmt.Fprintf(b.Progress, "\n%-52s %10s\n", b.report.Initramfs, mib(b.report.InitramfsSize))
	release := b.report.KernelRelease
	if release != "" {
		release = " (" + release + ")"
	}
	_, _ = fmt.Fprintf(b.Progress, "%-52s %10s\n", b.report.Kernel+release, mib(b.report.KernelSize))
	b.printMissing()
	b.say("done")
}

func (b *builder) printPart(p Part) {
	_, _ = fmt.Fprintf(b.Progress, "%-34s %6d %10s %10s\n", p.Name, p.Files, mib(p.Raw), mib(p.Store))
}

func mib(size int64) string { return fmt.Sprintf("%.2f MiB", float64(size)/(1<<20)) }

// printMissing prints the firmware that modules request and the image lacks.
func (b *builder) printMissing() {
	if b.NoFirmware {
		_, _ = fmt.Fprintln(b.Progress, "the image has no firmware (--no-firmware)")
		return
	}
	byModule := map[string][]string{}
	for _, m := range b.report.MissingFirmware {
		key := strings.Join(m.Modules, ", ")
		byModule[key] = append(byModule[key], m.Name)
	}
	for _, modules := range sortedKeys(byModule) {
		_, _ = fmt.Fprintf(b.Progress, "not in the image: firmware of %s: %s\n",
			modules, strings.Join(byModule[modules], " "))
	}
}
