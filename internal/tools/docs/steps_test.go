package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// docs/steps.md has a table of the steps of each manager in every image.
func TestStepsOfAllManagers(t *testing.T) {
	text, err := os.ReadFile(filepath.Join(root, "docs/steps.md"))
	if err != nil {
		t.Fatal(err)
	}
	all, err := managers()
	if err != nil {
		t.Fatal(err)
	}
	for _, m := range all {
		if want := "<!-- generated: steps " + m.Class() + " -->"; !strings.Contains(string(text), want) {
			t.Errorf("docs/steps.md has no block %s", want)
		}
	}
}

func TestSteps(t *testing.T) {
	for _, test := range []struct {
		block block
		want  string
	}{
		{steps, "| `erase_devices_metadata` | deploy | 99 | 0 | – | in cleaning | no | "},
		{steps, "| `burnin_disk` | deploy | 0 | – | – | yes | no | "},
		{steps, "| `write_image` | deploy | – | 0 | 0 | no | no | "},
		{arguments, "| `apply_configuration` | `raid_config` | yes | yes | "},
		{arguments, "| `write_image` | `configdrive` | no | no | "},
	} {
		got, err := test.block(root, []string{"GenericHardwareManager"}, "")
		if err != nil || !strings.Contains(got, "\n"+test.want) {
			t.Errorf("got error %v, and\n%s, want %q", err, got, test.want)
		}
	}
	if got, err := steps(root, []string{"MellanoxDeviceHardwareManager"}, ""); err != nil ||
		!strings.Contains(got, "_firmware_image` | deploy | 0 | 0 | 0 | no | yes | ") {
		t.Errorf("network cards: got error %v, and\n%s", err, got)
	}
	for _, block := range []block{steps, arguments} {
		for name, words := range map[string][]string{"want the class": nil, "Other is unknown": {"Other"}} {
			if _, err := block(root, words, ""); err == nil || !strings.Contains(err.Error(), name) {
				t.Errorf("%q: got error %v, want %q", words, err, name)
			}
		}
	}
}
