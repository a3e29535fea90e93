//go:build linux

package boot

import "testing"

func TestWantsFIPS(t *testing.T) {
	for cmdline, want := range map[string]bool{
		"": false, "fips": false, "fips=0": false, "fips=1": true, "fips=1 fips=0": false, "quiet fips=2": true,
		"fips=1 -- fips=0": true, "fips=1 --  --\tfips=0": true, "fips=0 -- fips=1": false, "-- fips=1": false,
		`sshkey="a -- b" fips=1 -- fips=0`: true, "fips=1 --x fips=0": false,
	} {
		if got := wantsFIPS(cmdline); got != want {
			t.Errorf("%q: got %t, want %t", cmdline, got, want)
		}
	}
}
