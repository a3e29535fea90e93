package bench

import (
	"fmt"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"ironroot/lab/qemu"
)

// maxErase limits the ratio of the time to erase eight disks in parallel to the time of one.
const maxErase = 1.2

// BenchmarkEraseConcurrency runs the step erase_devices of a machine with eight disks of limited rate, in turn for one
// of them (skip_block_devices names the others) and for all of them with disk_erasure_concurrency=8. Disks are
// overwritten with zeros and read back, without a pass of random data, which an emulated processor generates slowly.
// ratio is the time for eight divided by that for one, by the guest's clock, median of the rounds. It fails above
// maxErase.
func BenchmarkEraseConcurrency(b *testing.B) {
	const rounds = 3
	const size = 16 << 20
	const limit = 4 << 20
	dir := b.TempDir()
	var disks []qemu.Disk
	var others []any
	for i := range 8 {
		serial := fmt.Sprintf("disk%d", i)
		disks = append(disks, qemu.Disk{
			Bus: qemu.Virtio, File: filepath.Join(dir, serial), Size: size, Serial: serial, BytesPerSecond: limit,
		})
		if i > 0 {
			others = append(others, map[string]any{"serial": serial})
		}
	}
	var one, eight []time.Duration
	runSteps(b, qemu.Config{Disks: disks, InstructionClock: true}, func(a *agent) error {
		erase := func(times *[]time.Duration, want int, skipped []any) error {
			duration, result, err := a.step("clean", map[string]any{"step": "erase_devices", "interface": "deploy"},
				map[string]any{
					"properties": map[string]any{"skip_block_devices": skipped},
					"driver_internal_info": map[string]any{
						"disk_erasure_concurrency": 8, "agent_erase_devices_iterations": 0,
					},
				})
			if err != nil {
				return err
			}
			if got := strings.Count(result, `"outcome":"erased"`); got != want {
				return fmt.Errorf("got %d disks that were erased, want %d", got, want)
			}
			*times = append(*times, duration)
			return nil
		}
		for round := range rounds {
			calls := []func() error{
				func() error { return erase(&one, 1, others) },
				func() error { return erase(&eight, 8, []any{}) },
			}
			for i := range calls {
				if err := calls[(round+i)%len(calls)](); err != nil {
					return err
				}
			}
		}
		return nil
	})
	b.Logf("one disk %v, eight %v", one, eight)
	var ones, eights, ratios []float64
	for i := range one {
		ones, eights = append(ones, one[i].Seconds()), append(eights, eight[i].Seconds())
		ratios = append(ratios, eights[i]/ones[i])
	}
	ratio := median(ratios)
	b.ReportMetric(0, "ns/op")
	b.ReportMetric(median(ones), "one-disk-s")
	b.ReportMetric(median(eights), "eight-disks-s")
	b.ReportMetric(ratio, "ratio")
	if ratio > maxErase {
		b.Errorf("eight disks: got %.2f times the time of one disk (%.2f), want at most %.2f", ratio, ratios, maxErase)
	}
}
