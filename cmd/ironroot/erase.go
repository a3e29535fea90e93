package main

import (
	"crypto/ed25519"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"time"

	"ironroot/internal/bounded"
	"ironroot/internal/printable"
	"ironroot/storage/erase/evidence"
)

// eraseCmd has the commands for erased disks.
type eraseCmd struct {
	Verify eraseVerifyCmd `cmd:"" help:"Check the evidence of an erased disk: its form, its signature, and whether its claims follow from its facts."`
}

// eraseVerifyCmd checks an evidence file.
type eraseVerifyCmd struct {
	File     string `arg:"" help:"Evidence file, erase/SERIAL.json of the log archive."`
	Key      string `placeholder:"PEM" help:"File with the public key that the evidence must be signed with." xor:"key"`
	AnyKey   bool   `help:"Accept a signature of any key: the evidence is intact, but anyone can have written it." xor:"key"`
	Unsigned bool   `help:"Accept unsigned evidence, which anyone can have written or changed." xor:"key"`
	Require  string `enum:"any,clear,purge" default:"clear" help:"Fail unless the evidence claims this category or a higher one: clear or purge. any accepts all evidence, also that of a disk that was not erased (default: clear)."`

	out io.Writer
}

// Run checks the evidence and prints what it says.
func (c *eraseVerifyCmd) Run() error {
	data, err := bounded.ReadFile(c.File, evidence.MaxBytes)
	if err != nil {
		return err
	}
	found, err := evidence.Parse(data)
	if err != nil {
		return fmt.Errorf("verify %s: %w", c.File, err)
	}
	out := c.out
	if out == nil {
		out = os.Stdout
	}
	origin, err := c.checkOrigin(found)
	if _, printErr := io.WriteString(out, evidenceText(found.Record)+field("origin", origin)); printErr != nil {
		return printErr
	}
	if err == nil {
		err = c.checkCategory(found.Record.Sanitization)
	}
	if err != nil {
		return fmt.Errorf("verify %s: %w", c.File, err)
	}
	return nil
}

// checkOrigin returns what is known of the author of evidence, and an error unless the caller accepts that.
func (c *eraseVerifyCmd) checkOrigin(e evidence.Evidence) (string, error) {
	if e.Key == nil {
		text := "UNSIGNED: " + printable.Text(e.Unsigned)
		if c.Unsigned {
			return text, nil
		}
		return text, errors.New("evidence is unsigned: anyone can have written or changed it (--unsigned accepts it)")
	}
	name := evidence.Fingerprint(e.Key)
	switch {
	case c.AnyKey:
		return "signed, by unknown key " + name, nil
	case c.Key == "":
		return "signed, by unknown key " + name,
			errors.New("signature is valid, but its key was not compared: use --key, or accept it by --any-key")
	}
	want, err := evidence.ReadPublicKey(c.Key)
	if err != nil {
		return "signed, by unknown key " + name, err
	}
	if !ed25519.PublicKey.Equal(want, e.Key) {
		return "signed, by another key " + name,
			fmt.Errorf("got a signature by key %s, want %s", name, evidence.Fingerprint(want))
	}
	return "signed, by key " + name + " of " + printable.Text(c.Key), nil
}

func (c *eraseVerifyCmd) checkCategory(s evidence.Sanitization) error {
	if c.Require == "any" || c.Require != "" && s.Category.Includes(evidence.Category(c.Require)) {
		return nil
	}
	return fmt.Errorf("got category %q, want %q: %s", s.Category, c.Require, printable.Text(s.Reason))
}

// evidenceText describes a record.
func evidenceText(r evidence.Record) string {
	var out strings.Builder
	add := func(name, format string, args ...any) { out.WriteString(field(name, fmt.Sprintf(format, args...))) }
	add("disk", "serial %s, %s %s, firmware %s, %d bytes, %s", r.Disk.Serial, r.Disk.Vendor, r.Disk.Model,
		r.Disk.Firmware, r.Disk.Bytes, r.Disk.Path)
	if r.Disk.Virtual != "" {
		add("virtual", "%s", r.Disk.Virtual)
	}
	add("requested", "%s, node %s, by %s", r.Requested.Operation, r.Node, r.Program)
	add("outcome", "%s %s", r.Outcome, r.Reason)
	for _, t := range r.Targets {
		describeTarget(add, t)
	}
	for _, place := range r.Untouched {
		add("untouched", "%s: %s", place.Path, place.Reason)
	}
	s := r.Sanitization
	if s.Category == evidence.None {
		add("category", "none: %s", s.Reason)
		return out.String()
	}
	add("category", "NIST SP 800-88 Rev. 2 %s; IEEE 2883 %s by %s", s.Category, s.Method, s.Technique)
	if s.Reason != "" {
		add("not higher", "%s", s.Reason)
	}
	for _, limit := range s.Limits {
		add("limit", "%s", limit)
	}
	return out.String()
}

func describeTarget(add func(name, format string, args ...any), t evidence.Target) {
	add("erase", "%s by %s %s %s, %s to %s", t.Path, t.Technique, t.LimitText(), t.Error,
		t.Started.Format(time.RFC3339), t.Ended.Format(time.RFC3339))
	for _, statement := range t.Reported {
		add("reported", "%s: %s", statement.Source, statement.Text)
	}
	if s := t.Samples; s != nil {
		add("samples", "%d of %d blocks unchanged", s.Unchanged, s.Comparable)
	}
	b := t.ReadBack
	if b == nil {
		add("read back", "nothing")
		return
	}
	content := fmt.Sprintf("%d different from what was written", b.Different)
	switch b.Expected {
	case evidence.ExpectAny:
		content = "content not compared: the drive determines it"
	case evidence.ExpectUniform:
		content = fmt.Sprintf("%d with data between erased blocks", b.Different)
	}
	add("read back", "%d of %d bytes, %s", b.Read, b.Size, content)
	for _, d := range b.Detection {
		add("finds", "%d remaining bytes in a row with probability %.4g", d.Bytes, d.Probability)
	}
}

// field returns a line of the output.
func field(name, text string) string {
	return fmt.Sprintf("%-11s %s\n", name+":", strings.Join(strings.Fields(printable.Text(text)), " "))
}
