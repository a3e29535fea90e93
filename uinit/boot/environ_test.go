//go:build linux

package boot

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"testing"
)

// A process that was started with a secret in its environment shows nothing of it afterwards, and still has what
// programs need. In FIPS 140-3 mode, its own child processes are in this mode, too.
func TestCleanEnvironment(t *testing.T) {
	if os.Getenv("BOOT_TEST_ROLE") == "environment" {
		err := cleanEnvironment()
		shown, readErr := os.ReadFile("/proc/self/environ")
		fmt.Printf("SHOWN %q %v %v %s\n", bytes.Trim(shown, "\x00"), err, readErr, os.Environ())
		return
	}
	for _, mode := range []string{"off", "on"} {
		cmd := exec.CommandContext(t.Context(), os.Args[0], "-test.run=TestCleanEnvironment")
		cmd.Env = append(os.Environ(), "BOOT_TEST_ROLE=environment", "ipa-agent-token=planted", "GODEBUG=fips140="+mode)
		out, err := cmd.CombinedOutput()
		if err != nil {
			t.Fatalf("%v\n%s", err, out)
		}
		if text := string(out); !strings.Contains(text, `SHOWN "" <nil> <nil> [`) ||
			!strings.Contains(text, "HOME=/root") || strings.Contains(text, "planted") ||
			strings.Contains(text, "GODEBUG=fips140=on") != (mode == "on") {
			t.Errorf("FIPS 140-3 mode %s: got %s, want an empty /proc/self/environ, HOME=/root, and this mode",
				mode, text)
		}
	}
}
