//go:build linux

package boot

import (
	"testing"

	"ironroot/agent/config"
)

func TestWantsFIPS(t *testing.T) {
	for cmdline, want := range map[string]bool{
		"": false, "fips": false, "fips=0": false, "fips=1": true, "fips=1 fips=0": false, "quiet fips=2": true,
	} {
		if got := wantsFIPS(config.ParseCmdline(cmdline)); got != want {
			t.Errorf("%q: got %t, want %t", cmdline, got, want)
		}
	}
}
