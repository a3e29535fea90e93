package evidence

import (
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

// NewPlan returns the extents that are read back of a disk, in order and without overlap. A disk of at most 4 GiB is
// one extent. Of a larger disk they have at least 2 % of the bytes: the disk is divided into parts of equal size of at
// most 50 MiB, and of each a random chunk of 1 MiB is read. Added are 1 MiB at both ends of the disk, and 128 KiB
// before and after each multiple of 1 GiB.
func NewPlan(size int64, seed Seed) []Extent { return version1().plan(size, seed) }

func (l layout) plan(size int64, seed Seed) []Extent {
	if size <= l.whole {
		return []Extent{{0, size}}
	}
	cells := (size + l.chunk - 1) / l.chunk
	count := min(cells, cells/l.share+2) // the last chunk can be shorter
	random := rand.NewChaCha8(seed)
	extents := make([]Extent, 0, count+size/l.boundary+3)
	extents = append(extents, Extent{0, l.chunk}, Extent{(size - l.chunk) &^ (alignment - 1), size})
	for i := range count {
		first, next := cells*i/count, cells*(i+1)/count
		start := (first + below(random, next-first)) * l.chunk
		extents = append(extents, Extent{start, min(start+l.chunk, size)})
	}
	for at := l.boundary; at < size; at += l.boundary {
		extents = append(extents, Extent{at - l.margin, min(at+l.margin, size)})
	}
	return merged(extents)
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

// merged sorts extents and joins those that overlap or touch.
func merged(extents []Extent) []Extent {
	slices.SortFunc(extents, func(a, b Extent) int {
		if a.Start != b.Start {
			return int(min(max(a.Start-b.Start, -1), 1))
		}
		return int(min(max(a.End-b.End, -1), 1))
	})
	joined := extents[:1]
	for _, e := range extents[1:] {
		last := &joined[len(joined)-1]
		if e.Start > last.End {
			joined = append(joined, e)
			continue
		}
		last.End = max(last.End, e.End)
	}
	return joined
}

// PlanBytes returns the number of bytes in extents that do not overlap.
func PlanBytes(extents []Extent) int64 {
	total := int64(0)
	for _, e := range extents {
		total += e.End - e.Start
	}
	return total
}

// probability returns the probability that a range of length bytes at a random place of a disk shares a byte with the
// extents, which are in order and do not overlap. Every place where the range fits is equally likely. The result is
// exact: it is the number of the places where the range shares a byte, divided by the number of places.
func probability(size int64, extents []Extent, length int64) float64 {
	if length <= 0 || length > size {
		return 0
	}
	last := size - length // the last place
	hits, next := int64(0), int64(0)
	for _, e := range extents {
		from, to := max(next, e.Start-length+1), min(last, e.End-1) // the places that share a byte with e
		if from <= to {
			hits += to - from + 1
			next = to + 1
		}
	}
	return float64(hits) / float64(last+1)
}

// detectionSizes are the lengths of the ranges whose probability a record states.
func detectionSizes() []int64 {
	return []int64{4 << 10, 64 << 10, 1 << 20, 16 << 20, 128 << 20, 1 << 30}
}

// PlanDetection returns the probabilities that a range which differs in every byte is found by reading a plan.
func PlanDetection(size int64, plan []Extent) []Detection { return detection(size, plan) }

// SampleDetection returns the probabilities that samples find a range that was not erased. A sample finds it if the
// range contains one of its parts of 512 bytes.
func SampleDetection(size int64, offsets []int64) []Detection {
	var extents []Extent
	for _, offset := range offsets {
		// A range of 1023 bytes or more shares a byte with this extent exactly if it contains a part of the sample.
		extents = append(extents, Extent{offset + UnitBytes - 1, offset + SampleBytes - UnitBytes + 1})
	}
	return detection(size, extents)
}

func detection(size int64, extents []Extent) []Detection {
	list := []Detection{}
	for _, length := range detectionSizes() {
		if length <= size {
			list = append(list, Detection{length, probability(size, extents, length)})
		}
	}
	return list
}
