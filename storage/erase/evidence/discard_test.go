package evidence

import (
	"crypto/ed25519"
	"errors"
	"os"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// discardedDisk returns the record of an SSD whose own erase was frozen, and that was discarded.
func discardedDisk(size int64) Record {
	r := full(discardTechnique)
	seed := seedOf(3)
	found, _ := WholeDetection(size)
	r.Disk.Bytes, r.Disk.Rotational = size, false
	target := &r.Targets[0]
	target.Limits = []Limit{{LimitFallback, "secure erase failed: frozen"}}
	target.Passes = []Pass{}
	target.Reported[0].Source, target.Reported[0].Text = "BLKDISCARD", "completed"
	target.Samples.Detection = SampleDetection(size, SampleOffsets(size, seed))
	target.ReadBack.Seed, target.ReadBack.Whole, target.ReadBack.Expected = "", true, ExpectZeros
	target.ReadBack.Size, target.ReadBack.Read, target.ReadBack.Zeros = size, size, size
	target.ReadBack.Detection = found
	return r
}

// A discard claims no category, and says why. The file is evidence of the first release that wrote version 5, and never
// changes.
//
// Parity: U1 (evidence)
func TestStoredDiscard(t *testing.T) {
	data, err := os.ReadFile("testdata/version5-discard.json")
	if err != nil {
		t.Fatal(err)
	}
	got, err := Parse(data)
	if err != nil || got.Record.Version != 5 || !testKey().Public().(ed25519.PublicKey).Equal(got.Key) {
		t.Fatalf("got version %d, key %x and %v, want version 5", got.Record.Version, got.Key, err)
	}
	want := discardedDisk(6 << 30)
	want.Version, want.Requested.Options["passes"] = 5, 1.0 // as JSON returns it
	want.Sanitization = Sanitization{
		Reason: "a discard is no technique of IEEE 2883: the disk reads as zeros, and its medium can hold the data",
		Limits: []string{},
	}
	if diff := cmp.Diff(want, got.Record); diff != "" {
		t.Errorf("record differs (-want +got):\n%s", diff)
	}
}

// A discard needs a read-back of every byte. A read-back of every byte has no seed, and finds every range.
func TestCheckDiscard(t *testing.T) {
	const size = 6 << 30
	target := func(change func(*Target)) func(*Record) { return func(r *Record) { change(&r.Targets[0]) } }
	readBack := func(change func(*ReadBack)) func(*Record) {
		return func(r *Record) { change(r.Targets[0].ReadBack) }
	}
	for name, c := range map[string]struct {
		change  func(*Record)
		version int // 0 if the record is not valid
	}{
		"unchanged": {func(*Record) {}, 5},
		"failed": {func(r *Record) {
			r.Outcome, r.Targets[0].Technique, r.Targets[0].Limits = Failed, "", nil
			b := r.Targets[0].ReadBack
			b.Zeros, b.Other, b.Different = size-4096, 4096, 4096
		}, 5},
		"sampled": {readBack(func(b *ReadBack) {
			seed := seedOf(4)
			b.Seed, b.Whole = seed.String(), false
			b.Detection, b.Read = PlanDetection(size, seed)
			b.Zeros = b.Read
		}), 0},
		"not read back":  {target(func(t *Target) { t.ReadBack = nil }), 0},
		"any content":    {readBack(func(b *ReadBack) { b.Expected = ExpectAny }), 0},
		"seed":           {readBack(func(b *ReadBack) { b.Seed = seedOf(3).String() }), 0},
		"text as seed":   {readBack(func(b *ReadBack) { b.Seed = "none" }), 0},
		"neither":        {readBack(func(b *ReadBack) { b.Whole = false }), 0},
		"a part":         {readBack(func(b *ReadBack) { b.Read, b.Zeros = size-512, size-512 }), 0},
		"no detection":   {readBack(func(b *ReadBack) { b.Detection = nil }), 0},
		"less detection": {readBack(func(b *ReadBack) { b.Detection[0].Probability = 0.5 }), 0},
		"other limits":   {target(func(t *Target) { t.Limits[0].Kind = LimitHidden }), 0},
	} {
		r := discardedDisk(size)
		c.change(&r)
		if envelope, err := Seal(r, nil, "", nil); (err == nil) != (c.version > 0) ||
			err != nil && !errors.Is(err, ErrInvalid) {
			t.Errorf("%s: got %s, %v, want version %d", name, envelope.Record, err, c.version)
		}
	}
}
