//go:build linux

package rig

import (
	"bytes"
	"context"
	"fmt"
	"os/exec"
	"strings"
	"testing"

	"ironroot/internal/test/testenv"
)

// Handshake connects to the agent with openssl, and returns its description of the session, or an error.
func (r *Rig) Handshake(t *testing.T, args ...string) (string, error) {
	t.Helper()
	testenv.Programs(t, "openssl")
	ctx, cancel := context.WithTimeout(t.Context(), OperationTimeout)
	defer cancel()
	cmd := exec.CommandContext(ctx, "openssl",
		append([]string{"s_client", "-connect", fmt.Sprintf("127.0.0.1:%d", agentForward)}, args...)...)
	var out bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &out
	wait, err := r.Namespace.Start(cmd)
	if err == nil {
		err = wait() // without standard input it exits after the handshake
	}
	return out.String(), err
}

// CheckTLSVersions checks which versions of TLS the agent accepts.
func (r *Rig) CheckTLSVersions(t *testing.T, want map[string]bool) {
	t.Helper()
	for version, ok := range want {
		out, err := r.Handshake(t, "-"+version, "-cipher", "ALL:@SECLEVEL=0")
		if (err == nil) != ok || !ok && !strings.Contains(out, "alert protocol version") {
			t.Errorf("%s: got error %v, want success %v:\n%s", version, err, ok, out)
		}
	}
}
