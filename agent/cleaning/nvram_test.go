package cleaning

import (
	"encoding/json"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestNVRAMPatterns(t *testing.T) {
	usual := []string{`(?i)^HD\(`, `(?i)shim.*\.efi`, `(?i)grub.*\.efi`}
	for _, tt := range []struct {
		argument string // "" for none
		want     []string
		fails    bool
	}{
		{argument: "", want: usual},
		{argument: "null", want: usual},
		{argument: "[]"},
		{argument: `["pxe", "^Uri\\("]`, want: []string{"(?i)pxe", `(?i)^Uri\(`}},
		{argument: `"HD"`, fails: true},
		{argument: `{"HD": 1}`, fails: true},
		{argument: `["HD", 1]`, fails: true},
		{argument: `["HD", null]`, fails: true},
		{argument: `["HD", "("]`, fails: true},
		{argument: `["HD", "(?=x)"]`, fails: true},
	} {
		var argument json.RawMessage
		if tt.argument != "" {
			argument = json.RawMessage(tt.argument)
		}
		patterns, err := parsePatterns(argument)
		if tt.fails {
			if typeOf(err) != "InvalidCommandParamsError" {
				t.Errorf("%s: got %v, want InvalidCommandParamsError", tt.argument, err)
			}
			continue
		}
		if err != nil {
			t.Errorf("%s: %v", tt.argument, err)
		}
		var got []string
		for _, p := range patterns {
			got = append(got, p.String())
		}
		if diff := cmp.Diff(tt.want, got); diff != "" {
			t.Errorf("%s: -want +got:\n%s", tt.argument, diff)
		}
	}
}
