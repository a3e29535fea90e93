package evidence

import (
	"encoding/hex"
	"errors"
	"fmt"
	"reflect"
	"slices"
)

// MaxDiskBytes limits the size of a disk that is read back. The read-backs of a record together cover at most this
// size, so that it is verified within seconds.
const MaxDiskBytes = 1 << 50

// maxTargets limits the targets of a record. Linux has at most 255 partitions on a disk.
const maxTargets = 256

// check checks whether a record is consistent: it claims what [Classify] allows, and its read-back and samples match
// their seeds.
func (r Record) check() error {
	if !slices.Contains([]Outcome{Erased, Partial, Failed, NotErased}, r.Outcome) {
		return fmt.Errorf("unknown outcome %q", r.Outcome)
	}
	if r.Ended.Before(r.Started) {
		return errors.New("the erase ended before it started")
	}
	if want := r.version(); r.Version != want {
		return fmt.Errorf("got version %d, want %d for the fields of the record", r.Version, want)
	}
	if len(r.Targets) > maxTargets {
		return fmt.Errorf("got %d targets, want at most %d", len(r.Targets), maxTargets)
	}
	rest := int64(MaxDiskBytes)
	for _, t := range r.Targets {
		if t.ReadBack != nil {
			if rest -= min(max(t.ReadBack.Size, 0), MaxDiskBytes); rest < 0 {
				return fmt.Errorf("the read-backs cover more than %d bytes", int64(MaxDiskBytes))
			}
		}
		if err := t.check(); err != nil {
			return fmt.Errorf("%q: %w", t.Path, err)
		}
		if r.Outcome == NotErased || r.Outcome == Erased && t.Error != "" {
			return fmt.Errorf("%q: contradicts the outcome %q", t.Path, r.Outcome)
		}
	}
	return r.Sanitization.compare(Classify(r))
}

// compare returns an error that names the first field whose value differs from want's.
func (s Sanitization) compare(want Sanitization) error {
	got, wanted := reflect.ValueOf(s), reflect.ValueOf(want)
	for i := range got.NumField() {
		if g, w := got.Field(i).Interface(), wanted.Field(i).Interface(); !reflect.DeepEqual(g, w) {
			return fmt.Errorf("%s does not follow from the facts: got %q, want %q",
				got.Type().Field(i).Tag.Get("json"), g, w)
		}
	}
	return nil
}

// version returns the version that has the fields of a record.
func (r Record) version() int {
	version := 1
	for _, t := range r.Targets {
		switch {
		case t.Technique == discardTechnique, t.ReadBack != nil && t.ReadBack.Whole:
			version = max(version, 5)
		case len(t.Limits) > 0:
			version = max(version, 4)
		case t.ReadBack != nil && t.ReadBack.Expected == ExpectUniform:
			version = max(version, 3)
		case t.Hidden != nil:
			version = max(version, 2)
		}
	}
	return version
}

func (t Target) check() error {
	if t.Detail != "" && len(t.Limits) > 0 {
		return errors.New("has limits and a detail")
	}
	for _, limit := range t.Limits {
		switch limit.Kind {
		case LimitNamespaces, LimitPart:
		case LimitFallback:
			if t.Technique != overwriteTechnique && t.Technique != discardTechnique {
				return fmt.Errorf("limit of kind %q: got technique %q, want %q or %q",
					limit.Kind, t.Technique, overwriteTechnique, discardTechnique)
			}
		case LimitHidden:
			if t.Hidden == nil {
				return fmt.Errorf("limit of kind %q: the record states no hidden bytes", limit.Kind)
			}
		default:
			return fmt.Errorf("unknown kind of limit %q", limit.Kind)
		}
	}
	if b := t.ReadBack; t.Technique == discardTechnique && (b == nil || !b.Whole || b.Expected != ExpectZeros) {
		return fmt.Errorf("technique %q: got no read-back of every byte that expects zeros", t.Technique)
	}
	if h := t.Hidden; h != nil {
		switch known := !h.NativeUnknown && !h.OverlayUnknown; {
		case min(h.NativeBytes, h.OverlayBytes) < 0 || known && h.Bytes() <= 0:
			return fmt.Errorf("got %d and %d hidden bytes, want positive numbers", h.NativeBytes, h.OverlayBytes)
		case h.NativeUnknown && h.NativeBytes > 0 || h.OverlayUnknown && h.OverlayBytes > 0:
			return errors.New("states hidden bytes whose number is not known")
		}
	}
	if s := t.Samples; s != nil {
		seed, size := parseSeed(s.Seed), int64(0)
		if t.ReadBack != nil {
			size = t.ReadBack.Size
		}
		if seed == nil || s.Bytes != SampleBytes || s.Unchanged < 0 || s.Unchanged > s.Comparable ||
			s.Comparable > s.Blocks || s.Written && s.Comparable != s.Blocks {
			return errors.New("values of the samples are impossible")
		}
		if size > 0 && size <= MaxDiskBytes {
			offsets := SampleOffsets(size, *seed)
			want := SampleDetection(size, offsets)
			if !s.Written {
				want = nil
			}
			if s.Blocks != int64(len(offsets)) || !slices.Equal(s.Detection, want) {
				return errors.New("number or probabilities of the samples are not those of the seed")
			}
		}
	}
	b := t.ReadBack
	if b == nil {
		return nil
	}
	seed := parseSeed(b.Seed)
	if (seed == nil) != b.Whole || b.Whole && b.Seed != "" ||
		b.Size <= 0 || b.Size > MaxDiskBytes || min(b.Zeros, b.Ones, b.Other, b.Different) < 0 ||
		max(b.Zeros, b.Ones, b.Other, b.Different) > b.Size || b.Zeros+b.Ones+b.Other != b.Read ||
		b.Different > b.Read {
		return errors.New("values of the read-back are impossible")
	}
	want, read := WholeDetection(b.Size)
	if !b.Whole {
		want, read = PlanDetection(b.Size, *seed)
	}
	if b.Read != read {
		return errors.New("bytes that were read back are not those of the seed")
	}
	switch {
	case !slices.Contains([]string{ExpectZeros, ExpectWritten, ExpectAny, ExpectUniform}, b.Expected):
		return fmt.Errorf("unknown expectation %q", b.Expected)
	case b.Expected == ExpectZeros && b.Different != b.Ones+b.Other:
		return errors.New("number of different bytes contradicts the content")
	case b.Expected == ExpectWritten && b.Different < b.Zeros+b.Ones:
		return errors.New("number of different bytes contradicts the content: random data has no uniform blocks")
	case b.Expected == ExpectAny && b.Different != 0:
		return errors.New("states different bytes, but no content was expected")
	case b.Expected == ExpectUniform && (b.Different > b.Other || b.Different == b.Read):
		return errors.New("number of different bytes contradicts the content")
	case b.Expected == ExpectAny && b.Other > 0, b.Expected == ExpectUniform && b.Other == b.Read:
		want = nil
	}
	if !slices.Equal(b.Detection, want) {
		return errors.New("probabilities of the read-back are not those of the seed")
	}
	return nil
}

// parseSeed returns the seed of its hexadecimal form, nil if it has another form.
func parseSeed(text string) *Seed {
	data, err := hex.DecodeString(text)
	if err != nil || len(data) != SeedBytes {
		return nil
	}
	seed := Seed(data)
	return &seed
}

// String returns the hexadecimal form of a seed.
func (s Seed) String() string { return hex.EncodeToString(s[:]) }
