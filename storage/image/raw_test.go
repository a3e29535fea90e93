package image

import (
	"math/rand/v2"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"ironroot/internal/test/imagetest"
	"ironroot/internal/test/testenv"
	"ironroot/storage/image/pipeline"
)

// Long ranges of zeros read as zeros on a disk that had other content, whether the device or the writer zeroes them.
func TestWriteRawZeros(t *testing.T) {
	data := imagetest.RandomBytes(55, 90*mib)
	clear(data[3*mib+4096 : 5*mib])
	clear(data[6*mib : 6*mib+minZeroGrain])
	clear(data[9*mib+12345 : 85*mib])
	clear(data[88*mib:])
	for name, disk := range map[string]string{
		"file": imagetest.UsedDisk(t, 92*mib), "loop device": testenv.Loop(t, imagetest.UsedDisk(t, 92*mib), 512),
	} {
		report, err := Write(t.Context(), disk,
			rawSource(data, imagetest.Serve(t, imagetest.Content(data)).URL), Options{})
		if err != nil {
			t.Fatal(err)
		}
		if at, same := imagetest.Difference(imagetest.ReadAt(t, disk, 0, len(data)), data); !same {
			t.Errorf("%s: the disk differs from the image at byte %d", name, at)
		}
		if report.Written > 20*mib {
			t.Errorf("%s: got %d bytes written, want the device to zero the long ranges", name, report.Written)
		}
	}
}

// Ranges of zeros are joined in any order, and none is lost or zeroed twice.
func TestZerosTogether(t *testing.T) {
	const grain = minZeroGrain
	for name, stretches := range map[string][]extent{
		"one":       {{0, 300}},
		"long":      {{4 * grain, 4 * zeroBatch / grain}},
		"scattered": {{0, 1}, {2, 3}, {100, 7}, {110, 1}},
		"alternate": func() (all []extent) {
			for i := range int64(4 * maxPendingZeros) {
				all = append(all, extent{2 * i, 1})
			}
			return all
		}(),
	} {
		for seed := range uint64(20) {
			var pieces, made []extent
			for _, s := range stretches {
				for i := range s.len {
					pieces = append(pieces, extent{(s.off + i) * grain, grain})
				}
			}
			r := rand.New(rand.NewPCG(seed, 1))
			for i := 0; i < len(pieces); i += pipeline.Writers { // as the writers deliver them: slightly out of order
				some := pieces[i:min(i+pipeline.Writers, len(pieces))]
				r.Shuffle(len(some), func(i, j int) { some[i], some[j] = some[j], some[i] })
			}
			p := &rawPlacer{}
			for _, e := range pieces {
				made = append(made, p.join(e)...)
				if len(p.pending) > maxPendingZeros {
					t.Fatalf("%s: %d ranges are pending, want at most %d", name, len(p.pending), maxPendingZeros)
				}
			}
			covered := map[int64]int{}
			for _, e := range append(made, p.pending...) {
				for off := e.off; off < e.end(); off += grain {
					covered[off]++
				}
			}
			want := map[int64]int{}
			for _, e := range pieces {
				want[e.off] = 1
			}
			if diff := cmp.Diff(want, covered, cmpopts.EquateEmpty()); diff != "" {
				t.Fatalf("%s, seed %d: %s", name, seed, diff)
			}
			if name == "long" && len(made) > 8 || name == "one" && len(made)+len(p.pending) > 3 {
				t.Errorf("%s, seed %d: got %d ranges, want few", name, seed, len(made)+len(p.pending))
			}
		}
	}
}
