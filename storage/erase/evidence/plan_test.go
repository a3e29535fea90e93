package evidence

import (
	"cmp"
	"encoding/binary"
	"math"
	"math/rand/v2"
	"slices"
	"testing"
)

func seedOf(n uint64) (s Seed) {
	binary.LittleEndian.PutUint64(s[:], n)
	return s
}

func planOf(size int64, seed Seed) []Extent { return slices.Collect(Plan(size, seed)) }

func covers(extents []Extent, from, to int64) bool {
	return slices.ContainsFunc(extents, func(e Extent) bool { return e.Start <= from && to <= e.End })
}

// A plan reads small disks as a whole, and of others at least 2 %, both ends and both sides of every GiB.
func TestPlan(t *testing.T) {
	const gib = 1 << 30
	for _, size := range []int64{512, 4096, 1 << 20, 4 * gib} {
		if got := planOf(size, seedOf(1)); !slices.Equal(got, []Extent{{0, size}}) {
			t.Errorf("%d bytes: got %v, want the whole disk", size, got)
		}
	}
	for i, size := range []int64{4*gib + 512, 5 * gib, 240057409536, 18000207937536, 100*gib + 4096*7 + 512} {
		plan := planOf(size, seedOf(uint64(i)))
		found, read := PlanDetection(size, seedOf(uint64(i)))
		sum := int64(0)
		for _, e := range plan {
			sum += e.End - e.Start
		}
		if read != sum {
			t.Errorf("%d bytes: got %d bytes to read, want %d", size, read, sum)
		}
		if float64(read) < 0.02*float64(size) || float64(read) > 0.04*float64(size) {
			t.Errorf("%d bytes: got %d bytes, want 2 %% and little more", size, read)
		}
		for i, e := range plan {
			if e.Start < 0 || e.Start >= e.End || e.End > size || i > 0 && e.Start <= plan[i-1].End ||
				e.Start%4096 != 0 || e.End%4096 != 0 && e.End != size {
				t.Fatalf("%d bytes: extent %v after %v", size, e, plan[max(0, i-1)])
			}
		}
		if !covers(plan, 0, 1<<20) || !covers(plan, size-1<<20, size) {
			t.Errorf("%d bytes: an end is not read", size)
		}
		for at := int64(gib); at < size; at += gib {
			if !covers(plan, at-128<<10, min(at+128<<10, size)) {
				t.Errorf("%d bytes: the boundary at %d is not read", size, at)
			}
		}
		if !slices.Equal(plan, planOf(size, seedOf(uint64(i)))) || slices.Equal(plan, planOf(size, seedOf(99))) {
			t.Errorf("%d bytes: the seed does not determine the plan", size)
		}
		if found[len(found)-1] != (Detection{1 << 30, 1}) {
			t.Errorf("%d bytes: got %v, want 1 GiB found with certainty", size, found)
		}
	}
}

// A plan is the same in every release: evidence of former releases is checked by its seed. The numbers belong to
// version 1.
func TestPlanIsStable(t *testing.T) {
	const size = 6 << 30
	plan, samples := planOf(size, seedOf(7)), SampleOffsets(size, seedOf(7))
	sum := int64(0)
	for i, e := range plan {
		sum += int64(i+1) * (e.Start>>12 ^ e.End>>9)
	}
	for i, offset := range samples {
		sum += int64(i+1) * (offset >> 12)
	}
	if len(plan) != 129 || len(samples) != 256 || sum != 105241959466 {
		t.Errorf("got %d extents, %d samples and sum %d, want 129, 256 and 105241959466", len(plan), len(samples), sum)
	}
}

// probability returns the probability that a range of one length is found.
func probability(size int64, extents []Extent, length int64) float64 {
	p := newPlaces(size, length)
	for _, e := range extents {
		p.add(e)
	}
	return p.probability()
}

// merged sorts extents and joins those that overlap or touch.
func merged(extents []Extent) (joined []Extent) {
	slices.SortFunc(extents, func(a, b Extent) int { return cmp.Compare(a.Start, b.Start) })
	for _, e := range extents {
		if n := len(joined); n > 0 && e.Start <= joined[n-1].End {
			joined[n-1].End = max(joined[n-1].End, e.End)
			continue
		}
		joined = append(joined, e)
	}
	return joined
}

// A plan has the chunks, boundaries and ends of its layout, whatever their order is, and each place once.
func TestPlanIsJoined(t *testing.T) {
	random := rand.New(rand.NewPCG(3, 4))
	for n := range uint64(2000) {
		l := layout{whole: 0, chunk: 8192, share: 3, boundary: 32768, margin: []int64{4096, 1024, 16384}[n%3]}
		size := 8192 + random.Int64N(400)*512
		cells := (size + l.chunk - 1) / l.chunk
		count := min(cells, cells/l.share+2)
		all := []Extent{{0, l.chunk}, {(size - l.chunk) &^ (alignment - 1), size}}
		source := rand.NewChaCha8(seedOf(n))
		for i := range count {
			first, next := cells*i/count, cells*(i+1)/count
			start := (first + below(source, next-first)) * l.chunk
			all = append(all, Extent{start, min(start+l.chunk, size)})
		}
		for at := l.boundary; at < size; at += l.boundary {
			all = append(all, Extent{at - l.margin, min(at+l.margin, size)})
		}
		want := merged(all)
		if got := slices.Collect(l.plan(size, seedOf(n))); !slices.Equal(got, want) {
			t.Fatalf("%d bytes: got %v, want %v", size, got, want)
		}
		for range l.plan(size, seedOf(n)) {
			break // the iterator can be left
		}
	}
}

// The probability is the share of the places of a range at which it shares a byte with what is read.
func TestProbability(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 2))
	for range 300 {
		size := 1 + random.Int64N(200)
		var extents []Extent
		for range random.IntN(6) {
			from := random.Int64N(size)
			extents = append(extents, Extent{from, from + 1 + random.Int64N(size-from)})
		}
		joined := merged(slices.Clone(extents))
		for length := int64(1); length <= size; length++ {
			hits := 0
			for at := range size - length + 1 {
				if slices.ContainsFunc(extents, func(e Extent) bool { return e.Start < at+length && at < e.End }) {
					hits++
				}
			}
			if got, want := probability(size, joined, length), float64(hits)/float64(size-length+1); got != want {
				t.Fatalf("%d bytes, %v, range of %d: got %v, want %v", size, extents, length, got, want)
			}
		}
	}
	got, read := detection(5000, slices.Values([]Extent{{0, 10}}))
	if len(got) != 1 || got[0].Bytes != 4096 || read != 10 {
		t.Errorf("disk of 5000 bytes: got %v and %d bytes, want the range of 4096 only and 10", got, read)
	}
}

// A sample finds a range if it contains one of its parts.
func TestSampleDetection(t *testing.T) {
	const size = 1 << 20
	offsets := []int64{0, 40960, 300 << 10, size - SampleBytes}
	for _, d := range SampleDetection(size, offsets) {
		hits := int64(0)
		for at := range size - d.Bytes + 1 {
			if slices.ContainsFunc(offsets, func(offset int64) bool {
				for unit := offset; unit < offset+SampleBytes; unit += UnitBytes {
					if at <= unit && unit+UnitBytes <= at+d.Bytes {
						return true
					}
				}
				return false
			}) {
				hits++
			}
		}
		if want := float64(hits) / float64(size-d.Bytes+1); d.Probability != want {
			t.Errorf("%d bytes: got %v, want %v", d.Bytes, d.Probability, want)
		}
	}
}

// Over many plans, a range is found about as often as the fraction that is read and the size of a chunk imply: the
// probabilities of single plans are not biased.
func TestProbabilityOfSampling(t *testing.T) {
	const size, length = 64 << 30, 1 << 20
	const plans = 20
	sum := 0.0
	for n := range uint64(plans) {
		sum += probability(size, planOf(size, seedOf(n)), length)
	}
	// A range of one chunk that does not begin at one shares bytes with two: of 50 chunks one is read, and those at
	// boundaries always.
	const want = 2.0/50 + (1.0/1024)*(1+0.25)
	if got := sum / plans; math.Abs(got-want) > 0.002 {
		t.Errorf("got a mean probability of %v, want about %v", got, want)
	}
}

// The figures in docs/erase-evidence.md agree with plans for 16 TB and 4 TB, and with the samples of 1 TiB.
func TestDocumentedFigures(t *testing.T) {
	plan := planOf(16e12, seedOf(5))
	if n := len(plan); n < 315_000 || n > 325_000 {
		t.Errorf("got %d extents, want 320,000", n)
	}
	if _, n := PlanDetection(4e12, seedOf(5)); n < 80.5e9 || n > 81.5e9 {
		t.Errorf("4 TB: got %d bytes, want 81 GB", n)
	}
	found := map[int64]float64{}
	probabilities, _ := PlanDetection(16e12, seedOf(5))
	for _, d := range probabilities {
		found[d.Bytes] = math.Round(100 * d.Probability)
	}
	for length, want := range map[int64]float64{4 << 10: 2, 1 << 20: 4, 16 << 20: 34, 128 << 20: 100, 1 << 30: 100} {
		if found[length] != want {
			t.Errorf("range of %d bytes: got %v %%, want %v %%", length, found[length], want)
		}
	}
	clear(found)
	for _, d := range SampleDetection(1<<40, SampleOffsets(1<<40, seedOf(5))) {
		found[d.Bytes] = math.Round(1e5 * d.Probability)
	}
	if got := found[1<<20]; got != 24 {
		t.Errorf("samples: got %v of 100,000, want 24", got)
	}
}
