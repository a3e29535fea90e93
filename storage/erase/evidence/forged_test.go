package evidence

import (
	"bytes"
	"errors"
	"maps"
	"math"
	"runtime"
	"slices"
	"strings"
	"testing"
	"unicode"
)

// forged returns evidence of a record that claims a category, with a valid signature, whatever its facts are.
func forged(t *testing.T, r Record, claim Sanitization) []byte {
	t.Helper()
	r.Version, r.Sanitization = r.version(), claim
	record, err := encode(r)
	if err != nil {
		t.Fatal(err)
	}
	return signedText(t, record)
}

// Evidence with a valid signature whose facts do not show an erase is not valid.
func TestForged(t *testing.T) {
	const tib = 1 << 40
	large := func(r *Record) {
		seed := seedOf(3)
		found, read := PlanDetection(tib, seed)
		r.Disk.Bytes = tib
		r.Targets[0].ReadBack = &ReadBack{
			Seed: seed.String(), Size: tib, Read: read, Direct: true, Expected: ExpectZeros, Zeros: read,
			Detection: found,
		}
		r.Targets[0].Passes[0].Bytes = tib
	}
	for name, change := range map[string]func(*Target){
		"512 bytes":          func(t *Target) { t.Passes[0].Bytes = 512 },
		"512 random bytes":   func(t *Target) { t.Passes[0] = Pass{Pattern: PatternRandom, Bytes: 512} },
		"random, zeros read": func(t *Target) { t.Passes[0].Pattern = PatternRandom },
		"no pass":            func(t *Target) { t.Passes = []Pass{} },
		"random at the end":  func(t *Target) { t.Passes = append(t.Passes, Pass{PatternRandom, tib, t.Ended}) },
		"unknown pattern":    func(t *Target) { t.Passes[0].Pattern = "ones" },
		"random that is zero": func(t *Target) {
			t.Passes[0].Pattern, t.ReadBack.Expected = PatternRandom, ExpectWritten
		},
	} {
		r := full("overwrite")
		large(&r)
		claim := Classify(r)
		if _, err := Parse(forged(t, r, claim)); err != nil || claim.Category != Clear {
			t.Fatalf("an honest record: got %+v and %v, want %s", claim, err, Clear)
		}
		change(&r.Targets[0])
		if _, err := Parse(forged(t, r, claim)); !errors.Is(err, ErrInvalid) {
			t.Errorf("%s: got %v, want %v", name, err, ErrInvalid)
		}
	}
}

// A drive's own erase is not shown by a host's pass, and counters that overflow hide no content.
func TestForgedDetails(t *testing.T) {
	drive := full("nvme-sanitize-block")
	claim := Classify(drive)
	b := drive.Targets[0].ReadBack
	drive.Targets[0].Passes = []Pass{{Pattern: PatternRandom, Bytes: drive.Disk.Bytes, Ended: drive.Ended}}
	b.Expected, b.Zeros, b.Other = ExpectWritten, 0, b.Read
	if _, err := Parse(forged(t, drive, claim)); claim.Category != Purge || !errors.Is(err, ErrInvalid) {
		t.Errorf("host data after a sanitize: got %v, want %v", err, ErrInvalid)
	}
	host := full("overwrite")
	b = host.Targets[0].ReadBack
	host.Targets[0].Passes[0].Pattern, b.Expected, b.Zeros, b.Other = PatternRandom, ExpectWritten, 0, b.Read
	claim = Classify(host)
	if _, err := Parse(forged(t, host, claim)); claim.Category != Clear || err != nil {
		t.Fatalf("random data: got %+v and %v, want %s", claim, err, Clear)
	}
	b.Zeros, b.Ones, b.Other = math.MaxInt64, math.MaxInt64, b.Read+2
	if _, err := Parse(forged(t, host, claim)); !errors.Is(err, ErrInvalid) {
		t.Errorf("counters that overflow: got %v, want %v", err, ErrInvalid)
	}
}

// An error contains no control character of a file: a terminal would interpret it.
func TestForgedControl(t *testing.T) {
	const path = "/dev/sda\x1b[2J\r\u202e\u009b"
	unprintable := func(c rune) bool { return !unicode.IsPrint(c) }
	for name, change := range map[string]func(*Record){
		"outcome": func(r *Record) { r.Targets[0].Error = path },
		"target":  func(r *Record) { r.Targets[0].ReadBack.Size = -1 },
		"unknown": func(r *Record) { r.Outcome = path },
		"expects": func(r *Record) { r.Targets[0].ReadBack.Expected = path },
		"claims":  func(r *Record) { r.Sanitization.Reason = path },
		"format":  func(r *Record) { r.Format = path },
	} {
		r := full("overwrite")
		r.Disk.Path, r.Targets[0].Path = path, path
		change(&r)
		claim := Classify(r)
		if name == "claims" {
			claim.Reason = path
		}
		_, err := Parse(forged(t, r, claim))
		if !errors.Is(err, ErrInvalid) || strings.ContainsFunc(err.Error(), unprintable) {
			t.Errorf("%s: got %q, want %v in printable characters", name, err, ErrInvalid)
		}
	}
}

// Evidence whose verification would need much memory or time is refused before it does.
func TestExcessive(t *testing.T) {
	r := full("overwrite")
	r.Outcome = Partial
	target := r.Targets[0]
	r.Targets = slices.Repeat([]Target{target}, maxTargets)
	if _, err := Parse(forged(t, r, Classify(r))); err != nil {
		t.Errorf("%d targets: got %v", maxTargets, err)
	}
	r.Targets = append(r.Targets, target)
	if _, err := Parse(forged(t, r, Classify(r))); err == nil || !strings.Contains(err.Error(), "got 257 targets") {
		t.Errorf("%d targets: got %v, want an error", len(r.Targets), err)
	}
	seed := seedOf(1)
	const half = MaxDiskBytes/2 + 4096
	found, read := PlanDetection(half, seed)
	b := ReadBack{
		Seed: seed.String(), Size: half, Read: read, Expected: ExpectZeros, Zeros: read, Detection: found,
	}
	target.ReadBack = &b
	r.Targets = []Target{target}
	data := forged(t, r, Classify(r))
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	if _, err := Parse(data); err != nil {
		t.Errorf("%d bytes: got %v", int64(half), err)
	}
	runtime.ReadMemStats(&after)
	if used := after.TotalAlloc - before.TotalAlloc; used > 4<<20 {
		t.Errorf("got %d bytes of memory for a plan of %d extents, want at most 4 MiB", used, read>>20)
	}
	r.Targets = append(r.Targets, target)
	if _, err := Parse(forged(t, r, Classify(r))); err == nil || !strings.Contains(err.Error(), "more than") {
		t.Errorf("two targets: got %v, want an error", err)
	}
}

// No record claims a category that this second description of the rules does not allow.
func FuzzClassify(f *testing.F) {
	names := slices.Sorted(maps.Keys(techniques()))
	for i := range names {
		f.Add(uint8(i), int64(8<<20), PatternZeros, ExpectAny, techniques()[names[i]].completedBy, true, int64(256),
			int64(0), true)
	}
	f.Add(uint8(slices.Index(names, "overwrite")), int64(8<<20), PatternZeros, ExpectZeros, "", false, int64(0),
		int64(0), true)
	f.Fuzz(func(t *testing.T, technique uint8, wrote int64, pattern, expect, source string, completed bool,
		comparable, unchanged int64, direct bool,
	) {
		name := names[int(technique)%len(names)]
		r := full(name)
		target := &r.Targets[0]
		target.Passes = []Pass{{Pattern: pattern, Bytes: wrote, Ended: r.Ended}}
		target.ReadBack.Expected, target.ReadBack.Direct = expect, direct
		target.Reported = []Statement{{Time: r.Started, Source: source, Completed: completed}}
		if target.Samples != nil {
			target.Samples.Comparable, target.Samples.Unchanged = comparable, unchanged
		}
		envelope, err := Seal(r, testKey(), "", nil)
		if err != nil {
			return
		}
		data, err := envelope.JSON()
		if err != nil {
			t.Fatal(err)
		}
		e, err := Parse(data)
		if err != nil {
			t.Fatalf("sealed, and not valid: %v", err)
		}
		if e.Record.Sanitization.Category == None {
			return
		}
		overwritten := wrote == r.Disk.Bytes &&
			(pattern == "zeros" && expect == "zeros" || pattern == "random" && expect == "written")
		first := strings.Join(strings.Split(name+"-", "-")[:2], "-")
		erased := completed && source == completions[first] && comparable > 0 && unchanged == 0 &&
			(expect == "any" || expect == "uniform")
		if !direct || name == "overwrite" && !overwritten || name != "overwrite" && !erased {
			t.Errorf("%s: got %+v for %s", name, e.Record.Sanitization, bytes.TrimSpace(data))
		}
	})
}

// completions are the commands and log pages that report the end of a drive's own erase, by the first two words of the
// technique.
var completions = map[string]string{
	"nvme-format": "Format NVM", "nvme-sanitize": "NVMe Sanitize Status log page", "ata-secure": "SECURITY ERASE UNIT",
	"ata-sanitize": "SANITIZE STATUS EXT", "scsi-sanitize": "TEST UNIT READY",
}
