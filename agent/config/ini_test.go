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

// The time grows with the length of a value, not with its square.
func TestParseINIManyLines(t *testing.T) {
	const lines = 400_000
	got, err := parseINI("a = 1\n" + strings.Repeat(" x\n", lines))
	if err != nil || len(got) != 1 || len(got[0].value) != 1+2*lines {
		t.Errorf("got %d settings and error %v, want one of %d bytes", len(got), err, 1+2*lines)
	}
}
