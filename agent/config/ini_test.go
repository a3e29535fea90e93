package config

import (
	"slices"
	"strings"
	"testing"
)

// The settings are those that oslo.config of Debian sid reads, and it rejects the same files.
//
// Parity: C3 (format)
func TestParseINI(t *testing.T) {
	for _, tt := range []struct {
		text string
		want []setting
	}{
		{"[DEFAULT]\na=`x`\nb=\"\"\"y\"\"\"", []setting{{"DEFAULT", "a", "`x`"}, {"DEFAULT", "b", `""y""`}}},
		{"[A]\na = \"x'\nb='y'\nc=\"\nd=''\ne=\"x\" # y", []setting{
			{"a", "a", `"x'`}, {"a", "b", "y"}, {"a", "c", ""}, {"a", "d", ""}, {"a", "e", `"x" # y`},
		}},
		{"[a]\na: b=c\nd=e:f\n", []setting{{"a", "a", "b=c"}, {"a", "d", "e:f"}}},
		{"[a]\na =\n  1\nb = \"x\n  y\"", []setting{{"a", "a", "\n1"}, {"a", "b", "\"x\ny\""}}},
		{"[a] \r\na = b \r\n", []setting{{"a", "a", "b"}}},
		{"[a]\nx = a;b # c\n#y=1\n;z=2\nx=%(x)s", []setting{{"a", "x", "a;b # c"}, {"a", "x", "%(x)s"}}},
		{"[default]\na=1\n[DEFAULT]\na=2", []setting{{"default", "a", "1"}, {"DEFAULT", "a", "2"}}},
		{"[a]\na\n", nil},
		{"[]\na=b", nil},
		{"[a\n", nil},
		{"[a]\n=x", nil},
		{"[a]\na = 1,\n\t# 3\n\n  4", nil},
	} {
		got, err := parseINI(tt.text)
		if !slices.Equal(got, tt.want) || (err == nil) != (tt.want != nil) {
			t.Errorf("%q: got %q and error %v, want %q", tt.text, got, err, tt.want)
		}
	}
}

// Forms that oslo.config rejects are read if their meaning is certain.
func TestParseINITolerates(t *testing.T) {
	want := []setting{{"DEFAULT", "a", "1"}, {"x", "b", "2"}}
	if got, err := parseINI("\ufeffa=1\n[x]\n  b=2\n"); err != nil || !slices.Equal(got, want) {
		t.Errorf("got %q and error %v, want %q", got, err, want)
	}
}

// A value of many lines is joined once: to copy it for each line would take minutes for a file of the largest size.
func TestParseINIManyLines(t *testing.T) {
	const lines = 20_000
	text := "a = 1\n" + strings.Repeat(" x\n", lines)
	allocations := testing.AllocsPerRun(1, func() {
		got, err := parseINI(text)
		if err != nil || len(got) != 1 || len(got[0].value) != 1+2*lines {
			t.Errorf("got %d settings and error %v, want one of %d bytes", len(got), err, 1+2*lines)
		}
	})
	if allocations > lines/10 {
		t.Errorf("got %v allocations for %d lines", allocations, lines)
	}
}

// Files can come from media. Names are never empty, and settings contain no more than the file.
func FuzzParseINI(f *testing.F) {
	f.Add("[DEFAULT]\na = 'x'\n  y\n[b]\n# c\nd:e\n")
	f.Add("\ufeffa=1\n\t;b\n[x\n")
	f.Fuzz(func(t *testing.T, text string) {
		settings, err := parseINI(text)
		if err != nil && settings != nil {
			t.Errorf("got settings %q and error %v", settings, err)
		}
		size := 0
		for _, s := range settings {
			if s.group == "" || s.name == "" || strings.ContainsAny(s.group+s.name, "\n") {
				t.Errorf("got group %q and name %q", s.group, s.name)
			}
			size += len(s.name) + len(s.value)
		}
		if size > len(text) {
			t.Errorf("got %d bytes of settings from %d", size, len(text))
		}
	})
}
