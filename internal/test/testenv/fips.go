package testenv

import (
	"crypto/fips140"
	"os"
	"os/exec"
	"strings"
	"testing"
)

// FIPS reports whether the test runs in FIPS 140-3 mode. If not, it runs the test in a new process that does, and the
// calling test fails if that one does not pass.
func FIPS(t *testing.T) bool {
	t.Helper()
	if fips140.Enabled() {
		return true
	}
	cmd := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^"+t.Name()+"$", "-test.v")
	cmd.Env = append(os.Environ(), "GODEBUG=fips140=on")
	if out, err := cmd.CombinedOutput(); err != nil || !strings.Contains(string(out), "--- PASS: "+t.Name()) {
		t.Errorf("in FIPS 140-3 mode: %v\n%s", err, out)
	}
	return false
}
