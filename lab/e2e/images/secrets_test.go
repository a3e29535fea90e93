//go:build linux

package images

import (
	"bytes"
	"errors"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"ironroot/lab/e2e/rig"
)

// planted are secrets that an operator can put on the kernel's command line, which the kernel's log repeats.
var planted = struct{ rootPassword, parameter string }{"$6$salt$planted-of-the-root-password", "planted-in-a-parameter"}

// plantedParameters returns kernel parameters with the secrets.
func plantedParameters() string {
	return ` rootpwd="` + planted.rootPassword + `" mirror=http://user:` + planted.parameter + `@192.0.2.1/`
}

// checkSecrets searches the agent's logs, the guest's files and process 1 for secrets. The console is searched when the
// machine ends.
func checkSecrets(t *testing.T, r *rig.Rig) {
	r.Secrets = append(r.Secrets, planted.rootPassword, planted.parameter, "planted-of-a-rescue")
	// Errors do not repeat arguments.
	for _, name := range []string{"rescue.finalize_rescue", "standby.no_such_command", "standby.sync"} {
		r.Call(t, http.MethodPost, r.Node.Token(),
			`{"name": "`+name+`", "params": {"rescue_password": "planted-of-a-rescue", "hashed": true}}`)
	}
	members := r.Logs(t)
	if !strings.Contains(members["dmesg"], "mirror=http://user:***@192.0.2.1/") ||
		!strings.Contains(members["journal"], "request") {
		t.Error("the archive lacks the kernel's command line or the agent's lines: nothing was shown")
	}
	for _, secret := range append([]string{r.Node.Token()}, r.Secrets...) {
		for name, data := range members {
			if at := strings.Index(data, secret); at >= 0 {
				t.Errorf("member %s of the archive shows a secret: ...%s", name, data[max(0, at-60):at+len(secret)])
			}
		}
	}
	r.SearchGuest(t, append([]string{r.Node.Token()}, r.Secrets...)...)
}

// searchDisks fails if a disk contains a secret. It also searches a file with all secrets, to prove that the search
// finds them.
func searchDisks(t *testing.T, r *rig.Rig, disks ...string) {
	t.Helper()
	secrets := append([]string{r.Node.Token()}, r.Secrets...)
	text := strings.Repeat("x", searchedBytes) + strings.Join(secrets, "\n")
	list := rig.WriteFile(t, filepath.Join(t.TempDir(), "secrets"), text)
	for i, secret := range secrets {
		for _, name := range append(disks, list) {
			if got, want := containsText(t, name, secret), name == list; got != want {
				t.Errorf("secret %d is in %s: got %t, want %t", i, name, got, want)
			}
		}
	}
}

// searchedBytes is the number of bytes that containsText reads at a time.
const searchedBytes = 1 << 20

// containsText reports whether a file contains a text. Holes of the file are skipped.
func containsText(t *testing.T, name, text string) bool {
	t.Helper()
	f, err := os.Open(name)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close() //nolint:errcheck // only read
	piece := make([]byte, searchedBytes)
	for at := int64(0); ; {
		data, err := f.Seek(at, unix.SEEK_DATA)
		if errors.Is(err, unix.ENXIO) {
			return false // only a hole is left
		}
		if err != nil {
			t.Fatal(err)
		}
		n, err := f.ReadAt(piece, data)
		if err != nil && !errors.Is(err, io.EOF) {
			t.Fatal(err)
		}
		if bytes.Contains(piece[:n], []byte(text)) {
			return true
		}
		at = data + int64(max(n-len(text), 1)) // the text can be across two pieces
	}
}
