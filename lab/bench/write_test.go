package bench

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"testing"
	"time"

	"ironroot/initramfs"
	"ironroot/internal/test/testenv"
	"ironroot/lab/imageserver"
	"ironroot/lab/qemu"
)

// BenchmarkWriteRaw writes a raw image over HTTP to a disk in a guest, in turn with `curl | dd bs=4M oflag=direct`,
// with the same and iflag=fullblock, with `curl | tee >(sha256sum) | dd iflag=fullblock oflag=direct`, and with the
// image writer. The last two do the same work, the first two compute no checksum. The ratios are curl's time divided by
// the image writer's, medians of the rounds: above 1 the image writer is faster.
func BenchmarkWriteRaw(b *testing.B) {
	const rounds = 5
	size := int64(512 << 20)
	work := b.TempDir()
	file, sum := randomImage(b, work, size)
	server, err := imageserver.New(imageserver.Options{})
	if err != nil {
		b.Fatal(err)
	}
	defer server.Close()
	server.File("image.raw", file)

	console := bootGuest(b, work, qemu.Config{
		Memory: 1 << 30, CPUs: 2,
		Disks: []qemu.Disk{
			{Bus: qemu.Virtio, File: filepath.Join(work, "target"), Size: size + 64<<20},
			{Bus: qemu.Virtio, File: testenv.DebianDisk(b, "bookworm", "curl"), ReadOnly: true},
		},
		NICs: []qemu.NIC{{}},
		Append: fmt.Sprintf("console=ttyS0 %s bench-url=%s bench-algorithm=sha256 bench-checksum=%s bench-rounds=%d",
			qemu.KernelHints, server.URLFrom("10.0.2.2", "image.raw"), sum, rounds),
	}, regexp.MustCompile(`BENCH-(DONE|FAILED.*)`))
	b.ReportMetric(0, "ns/op")
	ours := seconds(b, console, "ironroot")
	b.ReportMetric(float64(size)/1e6/median(ours), "ironroot-MB/s")
	for rival, ratio := range map[string]string{
		"curl-dd": "ratio", "curl-dd-fullblock": "ratio-to-fullblock", "curl-sha256sum-dd": "ratio-to-same-work",
	} {
		theirs := seconds(b, console, rival)
		var ratios []float64
		for i := range ours {
			ratios = append(ratios, theirs[i]/ours[i])
		}
		b.ReportMetric(median(ratios), ratio)
		b.ReportMetric(float64(size)/1e6/median(theirs), rival+"-MB/s")
	}
}

// randomImage creates a file with incompressible content and returns its SHA-256.
func randomImage(b *testing.B, dir string, size int64) (path, sum string) {
	path = filepath.Join(dir, "image.raw")
	f, err := os.Create(path)
	if err != nil {
		b.Fatal(err)
	}
	defer f.Close()
	hash := sha256.New()
	if _, err := io.CopyN(io.MultiWriter(f, hash), rand.Reader, size); err != nil {
		b.Fatal(err)
	}
	return path, hex.EncodeToString(hash.Sum(nil))
}

// bootGuest builds the ramdisk of the comparison, boots it, and returns its console when end has matched.
func bootGuest(b *testing.B, work string, c qemu.Config, end *regexp.Regexp) string {
	report := build(b, work, initramfs.Options{Init: "ironroot/lab/bench/guest", ModuleGroups: []string{"server"}})
	c.Name, c.Dir, c.Kernel, c.Initrd = "bench", work, report.Kernel, report.Initramfs
	ctx, cancel := context.WithTimeout(b.Context(), 20*time.Minute)
	defer cancel()
	machine, err := qemu.Start(ctx, c)
	if err != nil {
		b.Fatal(err)
	}
	defer machine.Stop() //nolint:errcheck // the machine has done its work
	match, err := machine.Console().Follow(ctx, end)
	if err != nil {
		b.Fatalf("%v\n%s", err, machine.Console().Tail(40))
	}
	if text := match.Groups[0]; text != "BENCH-DONE" {
		b.Fatal(text)
	}
	return machine.Console().String()
}

// build builds kernel and ramdisk of one comparison.
func build(b *testing.B, work string, o initramfs.Options) initramfs.Report {
	o.Dir, o.Out, o.Name = testenv.Top(b), work, filepath.Base(o.Init)
	report, err := initramfs.Build(b.Context(), o)
	if err != nil {
		b.Fatal(err)
	}
	return report
}

// seconds returns the durations of all runs of one contestant.
func seconds(b *testing.B, console, name string) []float64 {
	var all []float64
	for _, m := range regexp.MustCompile(`BENCH `+name+` ([0-9.]+)`).FindAllStringSubmatch(console, -1) {
		value, err := strconv.ParseFloat(m[1], 64)
		if err != nil {
			b.Fatal(err)
		}
		all = append(all, value)
	}
	b.Logf("%s: %v s", name, all)
	return all
}

func median(values []float64) float64 {
	sorted := slices.Sorted(slices.Values(values))
	return sorted[len(sorted)/2]
}
