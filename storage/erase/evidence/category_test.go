package evidence

import (
	"encoding/json"
	"go/ast"
	"go/parser"
	"go/token"
	"maps"
	"os"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"
)

// full returns the record of a hard disk that was erased as a whole, and verified.
func full(technique string) Record {
	const size = 8 << 20
	seed := seedOf(3)
	started := time.Date(2026, 5, 4, 3, 2, 1, 0, time.UTC)
	found, _ := PlanDetection(size, seed)
	target := Target{
		Path: "/dev/sda", Technique: technique, Started: started, Ended: started.Add(time.Hour),
		ReadBack: &ReadBack{
			Seed: seed.String(), Size: size, Read: size, Direct: true, Expected: ExpectAny, Zeros: size,
			Detection: found,
		},
		Samples: &Samples{
			Seed: seed.String(), Blocks: 256, Bytes: SampleBytes, Written: true, Comparable: 256,
			Detection: SampleDetection(size, SampleOffsets(size, seed)),
		},
		Reported: []Statement{{
			Time: started, Source: techniques()[technique].completedBy, Text: "completed", Completed: true,
		}},
	}
	if technique == "overwrite" {
		target.ReadBack.Expected, target.Samples, target.Reported = ExpectZeros, nil, nil
		target.Passes = []Pass{{Pattern: PatternZeros, Bytes: size, Ended: started}}
	}
	return Record{
		Format: Format, Version: 1, Program: "ironroot test", Node: "node",
		Disk: Disk{
			Path: "/dev/sda", Type: "disk", Transport: "sata", Vendor: "ATA", Model: "A & B <disk>", Serial: "S1",
			Firmware: "F1", Bytes: size, Sector: 512, Rotational: true,
		},
		Requested: Request{Operation: "erase", Options: map[string]any{"passes": 1, "zeroize": true}},
		Started:   started, Ended: started.Add(time.Hour), Outcome: Erased,
		Targets: []Target{target}, Untouched: []Place{},
	}
}

// A record never claims more than its facts support. The claims in testdata belong to version 1. They and their texts
// never change.
func TestClassify(t *testing.T) {
	data, err := os.ReadFile("testdata/version1-claims.json")
	if err != nil {
		t.Fatal(err)
	}
	var stored map[string]Sanitization
	if err := json.Unmarshal(data, &stored); err != nil {
		t.Fatal(err)
	}
	target := func(change func(*Target)) func(*Record) { return func(r *Record) { change(&r.Targets[0]) } }
	nothing := func(*Record) {}
	for _, c := range []struct {
		name, technique string
		change          func(*Record)
		want            Category
		words           string // in the reason or the limits
	}{
		{"overwrite", "overwrite", nothing, Clear, "HPA"},
		{
			"random", "overwrite", target(func(t *Target) {
				t.ReadBack.Expected, t.Passes[0].Pattern = ExpectWritten, PatternRandom
			}),
			Clear, "",
		},
		{
			"overwrite, not compared", "overwrite", target(func(t *Target) { t.ReadBack.Expected = ExpectAny }),
			None, "compared",
		},
		{"overwrite, no pass", "overwrite", target(func(t *Target) { t.Passes = nil }), None, "compared"},
		{
			"overwrite, short pass", "overwrite", target(func(t *Target) { t.Passes[0].Bytes = 512 }),
			None, "every byte",
		},
		{
			"random, zeros read", "overwrite", target(func(t *Target) { t.Passes[0].Pattern = PatternRandom }),
			None, "compared",
		},
		{
			"zeros, another pass after them", "overwrite", target(func(t *Target) {
				t.Passes = append(t.Passes, Pass{Pattern: PatternRandom, Bytes: t.ReadBack.Size})
			}),
			None, "compared",
		},
		{
			"passes of random data, then zeros", "overwrite", target(func(t *Target) {
				t.Passes = append([]Pass{{Pattern: PatternRandom, Bytes: t.ReadBack.Size}}, t.Passes...)
			}),
			Clear, "HPA",
		},
		{
			"report of another command", "ata-sanitize-block",
			target(func(t *Target) { t.Reported[0].Source = SourceATASecurity }), None, "report",
		},
		{
			"failed after a former one", "ata-sanitize-block", target(func(t *Target) {
				t.Reported = append(t.Reported, Statement{Source: SourceATASanitize})
			}),
			None, "report",
		},
		{
			"completed after a failed one", "ata-sanitize-block", target(func(t *Target) {
				t.Reported = append([]Statement{{Source: SourceATASanitize}}, t.Reported...)
			}),
			Purge, "",
		},
		{"format, crypto", "nvme-format-crypto", nothing, Clear, "Format NVM"},
		{"format", "nvme-format-user", nothing, Clear, "Format NVM"},
		{"NVMe block", "nvme-sanitize-block", nothing, Purge, ""},
		{"NVMe crypto", "nvme-sanitize-crypto", nothing, Purge, "encrypted"},
		{"NVMe overwrite", "nvme-sanitize-overwrite", nothing, Purge, ""},
		{"ATA enhanced, hard disk", "ata-secure-erase-enhanced", nothing, Purge, ""},
		{
			"ATA enhanced, SSD", "ata-secure-erase-enhanced", func(r *Record) { r.Disk.Rotational = false },
			Clear, "hard disks only",
		},
		{"ATA", "ata-secure-erase", nothing, Clear, "normal erase"},
		{"ATA block", "ata-sanitize-block", nothing, Purge, ""},
		{"ATA crypto", "ata-sanitize-crypto", nothing, Purge, "encrypted"},
		{"ATA overwrite", "ata-sanitize-overwrite", nothing, Purge, ""},
		{"SCSI block", "scsi-sanitize-block", nothing, Purge, ""},
		{"SCSI crypto", "scsi-sanitize-crypto", nothing, Purge, "encrypted"},
		{"SCSI overwrite", "scsi-sanitize-overwrite", nothing, Purge, ""},
		{"metadata", "metadata", nothing, None, "only metadata"},
		{"unknown", "magnet", nothing, None, "magnet"},
		{
			"virtual", "ata-sanitize-block", func(r *Record) { r.Disk.Virtual = "RAID" },
			Clear, "physical media were not reached: RAID",
		},
		{
			"virtual, overwrite", "overwrite", func(r *Record) { r.Disk.Virtual = "RAID" },
			Clear, "physical media were not reached: RAID",
		},
		{
			"restricted", "ata-sanitize-block", target(func(t *Target) { t.Detail = "others not erased" }),
			Clear, "others not erased",
		},
		{"failed", "ata-sanitize-block", func(r *Record) { r.Outcome = Failed }, None, "failed"},
		{"partial", "overwrite", func(r *Record) { r.Outcome = Partial }, None, "partial"},
		{"not erased", "overwrite", func(r *Record) { r.Outcome = NotErased }, None, "not erased"},
		{
			"something left", "overwrite", func(r *Record) { r.Untouched = []Place{{"/dev/sda1", "kept"}} },
			None, "parts",
		},
		{"partition", "overwrite", target(func(t *Target) { t.Path = "/dev/sda1" }), None, "parts"},
		{"no target", "overwrite", func(r *Record) { r.Targets = nil }, None, "parts"},
		{"not read back", "overwrite", target(func(t *Target) { t.ReadBack = nil }), None, "not read back"},
		{"cached", "overwrite", target(func(t *Target) { t.ReadBack.Direct = false }), None, "cache"},
		{"another size", "overwrite", func(r *Record) { r.Disk.Bytes++ }, None, "bytes of the disk"},
		{"different", "overwrite", target(func(t *Target) { t.ReadBack.Different = 512 }), None, "expected"},
		{"nothing read", "overwrite", target(func(t *Target) { t.ReadBack.Read = 0 }), None, "expected"},
		{"no report", "ata-sanitize-block", target(func(t *Target) { t.Reported = nil }), None, "report"},
		{
			"not completed", "ata-sanitize-block", target(func(t *Target) { t.Reported[0].Completed = false }),
			None, "report",
		},
		{"no samples", "ata-sanitize-crypto", target(func(t *Target) { t.Samples = nil }), None, "samples"},
		{
			"nothing to compare", "ata-sanitize-crypto", target(func(t *Target) { t.Samples.Comparable = 0 }),
			None, "samples",
		},
		{
			"sample left", "ata-sanitize-crypto", target(func(t *Target) { t.Samples.Unchanged = 1 }),
			None, "samples",
		},
	} {
		r := full(c.technique)
		c.change(&r)
		got := Classify(r)
		text := got.Reason + " " + strings.Join(got.Limits, " ")
		if got.Category != c.want || got.Method != c.want || !strings.Contains(text, c.words) ||
			(got.Technique == "") != (c.want == None) || c.want != Purge && got.Reason == "" {
			t.Errorf("%s: got %+v, want category %q and %q", c.name, got, c.want, c.words)
		}
		if want, ok := stored[c.name]; ok && !reflect.DeepEqual(got, want) {
			t.Errorf("%s: got %+v, want as in version 1: %+v", c.name, got, want)
		}
		delete(stored, c.name)
	}
	for name := range stored {
		t.Errorf("%s: stored as a claim of version 1, and not tested", name)
	}
}

// The techniques are the methods of package erase, which imports this one.
func TestTechniquesAreMethods(t *testing.T) {
	file, err := parser.ParseFile(token.NewFileSet(), "../report.go", nil, 0)
	if err != nil {
		t.Fatal(err)
	}
	var methods []string
	ast.Inspect(file, func(n ast.Node) bool {
		spec, ok := n.(*ast.ValueSpec)
		if !ok || len(spec.Values) != 1 {
			return true
		}
		if kind, ok := spec.Type.(*ast.Ident); !ok || kind.Name != "Technique" {
			return true
		}
		literal, ok := spec.Values[0].(*ast.BasicLit)
		if !ok {
			return true
		}
		method, err := strconv.Unquote(literal.Value)
		if err != nil {
			t.Fatal(err)
		}
		methods = append(methods, method)
		return true
	})
	want := append(slices.Collect(maps.Keys(techniques())), MetadataTechnique)
	slices.Sort(methods)
	slices.Sort(want)
	if !slices.Equal(methods, want) {
		t.Errorf("got methods %q, want %q", methods, want)
	}
}

// Purge includes clear.
func TestCategoryIncludes(t *testing.T) {
	order := []Category{None, Clear, Purge}
	for i, c := range order {
		for j, other := range order {
			if got, want := c.Includes(other), i >= j; got != want {
				t.Errorf("%q includes %q: got %t, want %t", c, other, got, want)
			}
		}
	}
}
