package main

import (
	"bytes"
	"crypto/ed25519"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"ironroot/storage/erase/evidence"
)

// evidenceFile writes the evidence of a disk whose partition table was erased, and a control character in a name.
func evidenceFile(t *testing.T, key ed25519.PrivateKey) string {
	t.Helper()
	now := time.Now().UTC()
	envelope, err := evidence.Seal(evidence.Record{
		Program: "ironroot test", Started: now, Ended: now, Outcome: evidence.Erased,
		Disk:      evidence.Disk{Path: "/dev/sda", Serial: "S1\x1b[2J", Bytes: 1 << 30},
		Requested: evidence.Request{Operation: "erase_devices_metadata"},
		Targets: []evidence.Target{{
			Path: "/dev/sda", Technique: "metadata", Started: now, Ended: now,
			Reported: []evidence.Statement{{Time: now, Source: "log", Text: "done"}},
		}},
		Untouched: []evidence.Place{},
	}, key, "no key here", nil)
	if err != nil {
		t.Fatal(err)
	}
	data, err := envelope.JSON()
	if err != nil {
		t.Fatal(err)
	}
	name := filepath.Join(t.TempDir(), "S1.json")
	if err := os.WriteFile(name, data, 0o600); err != nil {
		t.Fatal(err)
	}
	return name
}

func publicKeyFile(t *testing.T, key ed25519.PrivateKey) string {
	t.Helper()
	data, err := x509.MarshalPKIXPublicKey(key.Public())
	if err != nil {
		t.Fatal(err)
	}
	name := filepath.Join(t.TempDir(), "public.pem")
	if err := os.WriteFile(name, pem.EncodeToMemory(&pem.Block{Type: "PUBLIC KEY", Bytes: data}), 0o600); err != nil {
		t.Fatal(err)
	}
	return name
}

// Evidence is accepted only if its origin is the one that the caller expects, or the caller accepts any.
func TestEraseVerify(t *testing.T) {
	key := ed25519.NewKeyFromSeed(bytes.Repeat([]byte{1}, ed25519.SeedSize))
	other := ed25519.NewKeyFromSeed(bytes.Repeat([]byte{2}, ed25519.SeedSize))
	signed, unsigned := evidenceFile(t, key), evidenceFile(t, nil)
	tampered := filepath.Join(t.TempDir(), "tampered.json")
	data, err := os.ReadFile(signed)
	if err != nil {
		t.Fatal(err)
	}
	data = bytes.Replace(data, []byte("1073741824"), []byte("1073741825"), 1)
	if err := os.WriteFile(tampered, data, 0o600); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		name string
		args []string
		err  string // "" for none
		out  string
	}{
		{
			"key", []string{signed, "--key", publicKeyFile(t, key), "--require", "any"}, "", "signed, by key SHA256:",
		},
		{"no category", []string{signed, "--key", publicKeyFile(t, key)}, `want "clear": only metadata`, "signed"},
		{"another key", []string{signed, "--key", publicKeyFile(t, other)}, "want SHA256:", "signed, by another key"},
		{"no key", []string{signed}, "key was not compared", "signed, by unknown key"},
		{"no key file", []string{signed, "--key", "/missing"}, "no such file", "signed, by unknown key"},
		{"any key", []string{signed, "--any-key", "--require", "any"}, "", "signed, by unknown key"},
		{"signed is not unsigned", []string{signed, "--unsigned"}, "key was not compared", "signed"},
		{"unsigned", []string{unsigned}, "anyone can have written", "UNSIGNED: no key here"},
		{"unsigned, key", []string{unsigned, "--key", publicKeyFile(t, key)}, "is unsigned", "UNSIGNED"},
		{
			"unsigned, accepted",
			[]string{unsigned, "--unsigned", "--require", "any"},
			"",
			"category:   none: only metadata was erased",
		},
		{"category", []string{unsigned, "--unsigned", "--require", "clear"}, "only metadata", "none"},
		{"tampered", []string{tampered, "--any-key"}, "signature does not match", ""},
		{"not there", []string{"/missing.json"}, "no such file", ""},
	} {
		var out bytes.Buffer
		commands := &cli{}
		ctx, err := newParser(commands).Parse(append([]string{"erase", "verify"}, c.args...))
		if err != nil {
			t.Errorf("%s: %v", c.name, err)
			continue
		}
		commands.Erase.Verify.out = &out
		err = ctx.Run()
		if (err == nil) != (c.err == "") || err != nil && !strings.Contains(err.Error(), c.err) ||
			!strings.Contains(out.String(), c.out) || (out.Len() == 0) != (c.out == "") {
			t.Errorf("%s: got %v and\n%s\nwant %q and %q", c.name, err, &out, c.err, c.out)
		}
		if strings.Contains(out.String(), "\x1b") {
			t.Errorf("%s: the output has control characters", c.name)
		}
		if c.name == "tampered" && !errors.Is(err, evidence.ErrInvalid) {
			t.Errorf("%s: got %v, want ErrInvalid", c.name, err)
		}
	}
	for _, args := range [][]string{{"--any-key", "--unsigned"}, {"--require", "destroy"}} {
		if _, err := newParser(&cli{}).Parse(append([]string{"erase", "verify", signed}, args...)); err == nil {
			t.Errorf("%v: got no error", args)
		}
	}
}

// Each limit is a line of its own, and the line of the erase has all of them. The detail of a record before version 4
// is one limit, even if it joins several texts. See docs/erase-evidence.md.
func TestEvidenceLimits(t *testing.T) {
	now := time.Now().UTC()
	var seed evidence.Seed
	const size = 8 << 20
	detection, read := evidence.PlanDetection(size, seed)
	envelope, err := evidence.Seal(evidence.Record{
		Started: now, Ended: now, Outcome: evidence.Erased, Disk: evidence.Disk{Path: "/dev/sda", Bytes: size},
		Targets: []evidence.Target{{
			Path: "/dev/sda", Technique: "overwrite", Reported: []evidence.Statement{},
			Limits: []evidence.Limit{
				{Kind: evidence.LimitFallback, Text: "secure erase failed"}, {Kind: evidence.LimitPart, Text: "a part"},
			},
			Passes: []evidence.Pass{{Pattern: evidence.PatternZeros, Bytes: size}},
			ReadBack: &evidence.ReadBack{
				Seed: seed.String(), Size: size, Read: read, Direct: true, Expected: evidence.ExpectZeros, Zeros: read,
				Detection: detection,
			},
		}},
		Untouched: []evidence.Place{},
	}, nil, "", nil)
	if err != nil {
		t.Fatal(err)
	}
	data, err := envelope.JSON()
	if err != nil {
		t.Fatal(err)
	}
	detail, err := os.ReadFile("../../storage/erase/evidence/testdata/version3-uniform.json")
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		version int
		data    []byte
		want    []string
		lines   int // of limits
	}{
		{4, data, []string{
			"erase:      /dev/sda by overwrite secure erase failed; a part ,",
			"\nlimit:      secure erase failed\nlimit:      a part\n",
		}, 3}, // and the limit of an overwrite
		{
			3, detail,
			[]string{"which was not verified; it is not known whether the drive hides bytes by a DCO: if so,"},
			3,
		},
	} {
		e, err := evidence.Parse(c.data)
		if err != nil {
			t.Fatal(err)
		}
		text := evidenceText(e.Record)
		for _, want := range c.want {
			if !strings.Contains(text, want) {
				t.Errorf("version %d: got\n%s\nwant %q in it", c.version, text, want)
			}
		}
		if lines := strings.Count(text, "\nlimit: "); lines != c.lines || e.Record.Version != c.version {
			t.Errorf("version %d: got version %d and %d limits in\n%s\nwant %d",
				c.version, e.Record.Version, lines, text, c.lines)
		}
	}
}

// The result of the read-back is part of the output.
func TestEvidenceText(t *testing.T) {
	text := evidenceText(evidence.Record{
		Outcome: evidence.Erased, Disk: evidence.Disk{Virtual: "a RAID volume"},
		Sanitization: evidence.Sanitization{
			Category: evidence.Clear, Method: evidence.Clear, Technique: "overwrite", Reason: "why",
			Limits: []string{"not all"},
		},
		Targets: []evidence.Target{{
			Path: "/dev/sda", Samples: &evidence.Samples{Comparable: 256, Unchanged: 3},
			ReadBack: &evidence.ReadBack{
				Read: 1000, Size: 50000, Expected: evidence.ExpectZeros,
				Detection: []evidence.Detection{{Bytes: 4096, Probability: 0.0414141}},
			},
		}},
		Untouched: []evidence.Place{{Path: "/dev/sdb", Reason: "kept"}},
	})
	text += evidenceText(evidence.Record{Targets: []evidence.Target{{
		ReadBack: &evidence.ReadBack{Read: 2000, Size: 50000, Expected: evidence.ExpectAny},
	}}})
	text += evidenceText(evidence.Record{Targets: []evidence.Target{{
		ReadBack: &evidence.ReadBack{Read: 3000, Size: 50000, Expected: evidence.ExpectUniform, Different: 512},
	}}})
	for _, want := range []string{
		"category:   NIST SP 800-88 Rev. 2 clear; IEEE 2883 clear by overwrite\n",
		"not higher: why\n", "limit:      not all\n",
		"virtual:    a RAID volume\n", "samples:    3 of 256 blocks unchanged\n",
		"read back:  1000 of 50000 bytes, 0 different from what was written\n",
		"read back:  2000 of 50000 bytes, content not compared: the drive determines it\n",
		"read back:  3000 of 50000 bytes, 512 with data between erased blocks\n",
		"finds:      4096 remaining bytes in a row with probability 0.04141\n", "untouched:  /dev/sdb: kept\n",
	} {
		if !strings.Contains(text, want) {
			t.Errorf("got\n%s\nwant %q in it", text, want)
		}
	}
}
