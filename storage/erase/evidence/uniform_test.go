package evidence

import (
	"errors"
	"testing"
)

// uniform returns the record of a drive that has erased itself to uniform sectors.
func uniform(technique string, change func(*ReadBack)) Record {
	r := full(technique)
	b := r.Targets[0].ReadBack
	b.Expected = ExpectUniform
	change(b)
	return r
}

// Data between erased blocks claim no category, and an overwrite is not compared by them.
func TestClassifyUniform(t *testing.T) {
	for _, technique := range []string{"nvme-sanitize-block", "ata-sanitize-overwrite", "scsi-sanitize-block"} {
		if got := Classify(uniform(technique, func(*ReadBack) {})); got.Category != Purge {
			t.Errorf("%s: got %+v, want %s", technique, got, Purge)
		}
		got := Classify(uniform(technique, func(b *ReadBack) {
			b.Zeros, b.Other, b.Different = b.Zeros-4096, 4096, 4096
		}))
		if got.Category != None || got.Reason != "the content that was read back is not the expected one" {
			t.Errorf("%s, data: got %+v, want none", technique, got)
		}
	}
	if got := Classify(uniform("overwrite", func(*ReadBack) {})); got.Category != None {
		t.Errorf("overwrite: got %+v, want none", got)
	}
	for technique := range techniques() {
		if got, want := Cryptographic(technique), techniques()[technique].crypto; got != want {
			t.Errorf("%s: got %v, want %v", technique, got, want)
		}
	}
	if Cryptographic("magnet") {
		t.Error("an unknown technique counts as cryptographic")
	}
}

// Different bytes are a part of the other ones, never all that was read. Probabilities are stated exactly if some
// blocks are zeros or ones.
func TestCheckUniform(t *testing.T) {
	for name, c := range map[string]struct {
		change func(*ReadBack)
		valid  bool
	}{
		"zeros":       {func(*ReadBack) {}, true},
		"other fills": {func(b *ReadBack) { b.Zeros, b.Other = 4096, b.Read-4096 }, true},
		"data":        {func(b *ReadBack) { b.Zeros, b.Other, b.Different = 4096, b.Read-4096, 8192 }, true},
		"pattern": {func(b *ReadBack) {
			b.Zeros, b.Other, b.Detection = 0, b.Read, nil
		}, true},
		"pattern, probabilities": {func(b *ReadBack) { b.Zeros, b.Other = 0, b.Read }, false},
		"other fills, none": {func(b *ReadBack) {
			b.Zeros, b.Other, b.Detection = 4096, b.Read-4096, nil
		}, false},
		"more than the others": {func(b *ReadBack) { b.Zeros, b.Other, b.Different = b.Read-4096, 4096, 8192 }, false},
		"everything": {func(b *ReadBack) {
			b.Zeros, b.Other, b.Different, b.Detection = 0, b.Read, b.Read, nil
		}, false},
	} {
		_, err := Seal(uniform("ata-sanitize-block", c.change), nil, "", nil)
		if c.valid != (err == nil) || err != nil && !errors.Is(err, ErrInvalid) {
			t.Errorf("%s: got %v, want valid %v", name, err, c.valid)
		}
	}
}
