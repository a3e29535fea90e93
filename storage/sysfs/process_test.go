package sysfs

import (
	"strings"
	"testing"
)

func TestParseProcess(t *testing.T) {
	rest := "0 0 0 -1 4194560 10 11 12 13 150 25 16 17 " + strings.Repeat("1 ", 32) + "4096 4128 0\n"
	want := Process{
		PID: 123, Parent: 7, State: 'S', Flags: 4194560, UserTime: 150, SystemTime: 25,
		EnvironStart: 4096, EnvironEnd: 4128,
	}
	for name, stat := range map[string]string{
		"plain":                    "123 (cat) S 7 " + rest,
		"name like other fields":   "123 (a) R 8 (b) S 7 " + rest,
		"name with a line feed":    "123 (a\nb) S 7 " + rest,
		"fields of newer kernels":  "123 (cat) S 7 " + strings.TrimSpace(rest) + " 9 9 9\n",
		"name without any letters": "123 () S 7 " + rest,
	} {
		if got, err := ParseProcess([]byte(stat)); err != nil || got != want {
			t.Errorf("%s: got %+v, %v, want %+v", name, got, err, want)
		}
	}
	for name, stat := range map[string]string{
		"empty":            "",
		"number only":      "123",
		"short":            "123 (cat) S 7 0 0 0 -1 4194560",
		"without a number": "x (cat) S 7 " + rest,
		"number 0":         "0 (cat) S 7 " + rest,
		"number -1":        "-1 (cat) S 7 " + rest,
		"parent no number": "123 (cat) S x " + rest,
		"flags no number":  strings.Replace("123 (cat) S 7 "+rest, "4194560", "x", 1),
		"times not numbers": strings.NewReplacer(" 150 ", " x ", " 25 ", " x ").
			Replace("123 (cat) S 7 " + rest),
		"environment not numbers": strings.NewReplacer("4096", "x", "4128", "x").
			Replace("123 (cat) S 7 " + rest),
	} {
		if got, err := ParseProcess([]byte(stat)); err == nil {
			t.Errorf("%s: got %+v, want an error", name, got)
		}
	}
}
