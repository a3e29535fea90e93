package bench

import (
	"fmt"
	"path/filepath"
	"regexp"
	"testing"

	"ironroot/internal/test/testenv"
	"ironroot/lab/qemu"
)

// minOverwrite is the lowest accepted ratio of dd's time to the time of a pass.
const minOverwrite = 0.95

// BenchmarkOverwrite overwrites disks in a guest, in turn with `dd if=/dev/zero oflag=direct bs=4M` and with one pass
// of an erase: zeros on a disk without a limit, and random data on one whose rate is limited, as a real disk's is. The
// ratios are dd's time divided by the time of the pass, by the guest's clock, medians of the rounds: above 1 the pass
// is faster. It fails below minOverwrite.
func BenchmarkOverwrite(b *testing.B) {
	const rounds = 5
	const size, limitedSize, limit = 512 << 20, 96 << 20, 8 << 20
	work := b.TempDir()
	console := bootGuest(b, work, qemu.Config{
		Memory: 1 << 30, CPUs: 2, InstructionClock: true,
		Disks: []qemu.Disk{
			{Bus: qemu.Virtio, File: filepath.Join(work, "unlimited"), Size: size},
			{Bus: qemu.Virtio, File: testenv.DebianDisk(b, "bookworm", "curl"), ReadOnly: true},
			{Bus: qemu.Virtio, File: filepath.Join(work, "limited"), Size: limitedSize, BytesPerSecond: limit},
		},
		Append: fmt.Sprintf("console=ttyS0 %s bench-overwrite=vda:zeros,vdc:random bench-rounds=%d",
			qemu.KernelHints, rounds),
	}, regexp.MustCompile(`BENCH-(DONE|FAILED.*)`))
	b.ReportMetric(0, "ns/op")
	for disk, content := range map[string]string{"vda": "zeros", "vdc": "random"} {
		theirs, ours := seconds(b, console, disk+"-dd"), seconds(b, console, disk+"-ironroot")
		var ratios []float64
		for i := range ours {
			ratios = append(ratios, theirs[i]/ours[i])
		}
		b.ReportMetric(median(theirs), content+"-dd-s")
		b.ReportMetric(median(ours), content+"-s")
		b.ReportMetric(median(ratios), content+"-ratio")
		if median(ratios) < minOverwrite {
			b.Errorf("pass of %s: got a ratio of %.3f (%.3f), want at least %.2f",
				content, median(ratios), ratios, minOverwrite)
		}
	}
}
