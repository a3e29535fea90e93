package evidence

import (
	"iter"
	"math/bits"
	"math/rand/v2"
	"slices"
)

// The layout of version 1.
const (
	wholeLimit = 4 << 30   // bytes of the largest disk that is read as a whole
	chunkSize  = 1 << 20   // bytes that are read at each random place, and at both ends
	share      = 50        // one of so many chunks is read: 2 %
	boundary   = 1 << 30   // around each multiple, margin bytes are read before and after it
	margin     = 128 << 10 // bytes
	alignment  = 4096      // bytes, of all places except the end of the disk

	// SampleBytes is the size of a sample, and sampleCount the largest number of samples.
	SampleBytes = 4096
	sampleCount = 256
	// UnitBytes is the size of the parts of a sample that are compared.
	UnitBytes = 512
)

// SeedBytes is the length of a seed.
const SeedBytes = 32

// Seed selects random places. It is the seed of ChaCha8 (c2sp.org/chacha8rand).
type Seed [SeedBytes]byte

// Extent is the range of bytes from Start to before End.
type Extent struct{ Start, End int64 }

// layout has the parameters of a plan.
type layout struct{ whole, chunk, share, boundary, margin int64 }

func version1() layout { return layout{wholeLimit, chunkSize, share, boundary, margin} }

// Plan yields the extents that are read back of a disk, in order and without overlap. A disk of at most 4 GiB is one
// extent. Of a larger disk they have at least 2 % of the bytes: the disk is divided into parts of equal size of at most
// 50 MiB, and of each a random chunk of 1 MiB is read. Added are 1 MiB at both ends of the disk, and 128 KiB before and
// after each multiple of 1 GiB. A disk of [MaxDiskBytes] has 22 million extents.
func Plan(size int64, seed Seed) iter.Seq[Extent] { return version1().plan(size, seed) }

func (l layout) plan(size int64, seed Seed) iter.Seq[Extent] {
	if size <= l.whole {
		return slices.Values([]Extent{{0, size}})
	}
	cells := (size + l.chunk - 1) / l.chunk
	count := min(cells, cells/l.share+2) // the last chunk can be shorter
	return func(yield func(Extent) bool) {
		random := rand.NewChaCha8(seed)
		chunk := func(i int64) Extent {
			first, next := cells*i/count, cells*(i+1)/count
			start := (first + below(random, next-first)) * l.chunk
			return Extent{start, min(start+l.chunk, size)}
		}
		around := func(at int64) Extent { return Extent{at - l.margin, min(at+l.margin, size)} }
		// The next extent is whichever starts first: the next chunk, the range around the next boundary, or the end of
		// the disk. Extents that overlap or touch are joined.
		joined, i, next := Extent{0, l.chunk}, int64(0), chunk(0)
		for at := l.boundary; joined.End < size; {
			e := Extent{(size - l.chunk) &^ (alignment - 1), size}
			atBoundary := at < size && around(at).Start < e.Start
			if atBoundary {
				e = around(at)
			}
			switch {
			case i < count && next.Start < e.Start:
				e = next
				if i++; i < count {
					next = chunk(i)
				}
			case atBoundary:
				at += l.boundary
			}
			if e.Start > joined.End {
				if !yield(joined) {
					return
				}
				joined = e
			}
			joined.End = max(joined.End, e.End)
		}
		yield(joined)
	}
}

// SampleOffsets returns the places of the samples of a disk, in order. The disk is divided into parts of equal size
// with one block each at a random place, except that the first and the last block of the disk are taken. So one of the
// blocks is in any range of 2/256 of the disk and two blocks.
func SampleOffsets(size int64, seed Seed) []int64 {
	blocks := size / SampleBytes
	count := min(sampleCount, blocks)
	random := rand.NewChaCha8(seed)
	offsets := make([]int64, 0, count)
	for i := range count {
		first, next := blocks*i/count, blocks*(i+1)/count
		offsets = append(offsets, (first+below(random, next-first))*SampleBytes)
	}
	if count > 0 {
		offsets[0] = 0
		offsets[count-1] = size - SampleBytes
	}
	return offsets
}

// below returns a random number from 0 to below n: the upper half of the product of 64 random bits and n.
func below(random *rand.ChaCha8, n int64) int64 {
	high, _ := bits.Mul64(random.Uint64(), uint64(n))
	return int64(high)
}

// places counts the places of a range of bytes on a disk at which the range shares a byte with extents.
type places struct {
	length int64 // of the range
	last   int64 // place where the range fits
	hits   int64 // number of places so far
	next   int64 // first place that is not counted yet
}

func newPlaces(size, length int64) places { return places{length: length, last: size - length} }

// add adds an extent, which follows the former ones and does not overlap with them.
func (p *places) add(e Extent) {
	from, to := max(p.next, e.Start-p.length+1), min(p.last, e.End-1) // the places that share a byte with e
	if from <= to {
		p.hits += to - from + 1
		p.next = to + 1
	}
}

// probability returns the probability that the range at a random place shares a byte with the extents. Every place
// where the range fits is equally likely. The result is exact: it is the number of the places where the range shares a
// byte, divided by the number of places.
func (p *places) probability() float64 { return float64(p.hits) / float64(p.last+1) }

// detectionSizes are the lengths of the ranges whose probability a record states.
func detectionSizes() []int64 {
	return []int64{4 << 10, 64 << 10, 1 << 20, 16 << 20, 128 << 20, 1 << 30}
}

// detection returns the probabilities that extents, which are in order and do not overlap, share a byte with a range of
// each of the lengths that fit on the disk. It also returns the number of bytes in the extents.
func detection(size int64, extents iter.Seq[Extent]) (probabilities []Detection, bytes int64) {
	var counted []places
	for _, length := range detectionSizes() {
		if length <= size {
			counted = append(counted, newPlaces(size, length))
		}
	}
	for e := range extents {
		bytes += e.End - e.Start
		for i := range counted {
			counted[i].add(e)
		}
	}
	probabilities = []Detection{}
	for _, p := range counted {
		probabilities = append(probabilities, Detection{p.length, p.probability()})
	}
	return probabilities, bytes
}

// PlanDetection returns the probabilities that a range which differs in every byte is found by reading the plan of a
// disk, and the number of bytes that are read.
func PlanDetection(size int64, seed Seed) (probabilities []Detection, bytes int64) {
	return detection(size, Plan(size, seed))
}

// WholeDetection returns what [PlanDetection] returns if every byte of a disk is read.
func WholeDetection(size int64) (probabilities []Detection, bytes int64) {
	return detection(size, slices.Values([]Extent{{0, size}}))
}

// SampleDetection returns the probabilities that samples find a range that was not erased. A sample finds it if the
// range contains one of its parts of 512 bytes.
func SampleDetection(size int64, offsets []int64) []Detection {
	probabilities, _ := detection(size, func(yield func(Extent) bool) {
		for _, offset := range offsets {
			// A range of 1023 bytes or more shares a byte with this extent exactly if it contains a part of the sample.
			if !yield(Extent{offset + UnitBytes - 1, offset + SampleBytes - UnitBytes + 1}) {
				return
			}
		}
	})
	return probabilities
}
