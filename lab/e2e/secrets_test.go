//go:build linux

package e2e

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"ironroot/internal/test/testenv"
	"ironroot/lab/qemu"
)

// planted are secrets that an operator can put on the kernel's command line, which the kernel's log repeats.
var planted = struct{ rootPassword, parameter string }{"$6$salt$planted-of-the-root-password", "planted-in-a-parameter"}

// plantedParameters returns kernel parameters with the secrets.
func plantedParameters() string {
	return ` rootpwd="` + planted.rootPassword + `" mirror=http://user:` + planted.parameter + `@192.0.2.1/`
}

// checkSecrets searches the agent's logs, the guest's files and process 1 for secrets. The console is searched when the
// machine ends.
func (r *rig) checkSecrets(t *testing.T) {
	r.secrets = append(r.secrets, planted.rootPassword, planted.parameter, "planted-of-a-rescue")
	// Errors do not repeat arguments.
	for _, name := range []string{"rescue.finalize_rescue", "standby.no_such_command", "standby.sync"} {
		r.call(t, http.MethodPost, r.node.Token(),
			`{"name": "`+name+`", "params": {"rescue_password": "planted-of-a-rescue", "hashed": true}}`)
	}
	members := r.logs(t)
	if !strings.Contains(members["dmesg"], "mirror=http://user:***@192.0.2.1/") ||
		!strings.Contains(members["journal"], "request") {
		t.Error("the archive lacks the kernel's command line or the agent's lines: nothing was shown")
	}
	for _, secret := range append([]string{r.node.Token()}, r.secrets...) {
		for name, data := range members {
			if at := strings.Index(data, secret); at >= 0 {
				t.Errorf("member %s of the archive shows a secret: ...%s", name, data[max(0, at-60):at+len(secret)])
			}
		}
	}
	r.searchGuest(t, append([]string{r.node.Token()}, r.secrets...)...)
}

// logs returns the files in the agent's log archive.
func (r *rig) logs(t *testing.T) map[string]string {
	t.Helper()
	if err := r.node.CollectLogs(soon(t)); err != nil {
		t.Fatal(err)
	}
	return testenv.Untar(t, r.node.Logs())
}

// searchDisks fails if a disk contains a secret. It also searches a file with all secrets, to prove that the search
// finds them.
func (r *rig) searchDisks(t *testing.T, disks ...string) {
	t.Helper()
	secrets := append([]string{r.node.Token()}, r.secrets...)
	text := strings.Repeat("x", searchedBytes) + strings.Join(secrets, "\n")
	list := writeFile(t, filepath.Join(t.TempDir(), "secrets"), text)
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

// searchGuest searches the guest's own files, and the environment and arguments of process 1, for secrets. It uses
// the shell on the console, which requires the parameter ironroot.shell=1.
func (r *rig) searchGuest(t *testing.T, secrets ...string) {
	t.Helper()
	const places = "/etc /root /run /tmp /var /mnt /proc/1/environ /proc/1/cmdline /proc/1/comm"
	if got := r.grep(t, 0, "localhost", "/etc"); len(got) == 0 {
		t.Fatal("a search that must find something finds nothing")
	}
	for i, secret := range secrets {
		if got := r.grep(t, i+1, secret, places); len(got) > 0 {
			t.Errorf("secret %d is in %q of the guest", i, got)
		}
	}
}

// grep returns the files that contain a text. The typed command does not contain it. The reply contains the
// question's number and the length of the received text, so replies to earlier or truncated questions are ignored.
func (r *rig) grep(t *testing.T, question int, text, places string) []string {
	t.Helper()
	quoted := "'" + text[:len(text)/2] + "''" + text[len(text)/2:] + "'"
	line := fmt.Sprintf("s=%s; grep -rlF \"$s\" %s; echo 'SEAR''CHED' %d ${#s}\r", quoted, places, question)
	// The next line is typed after the prompt that follows.
	answer := r.typed(t, line, regexp.MustCompile(fmt.Sprintf(`(?s)^(.*?)SEARCHED %d %d\s.*?\$ `, question, len(text))))
	var found []string
	for line := range strings.Lines(qemu.Plain(answer)) {
		line = strings.TrimPrefix(line, "$ ") // the prompt of a shell that started while the line was typed
		if name := strings.TrimSpace(line); regexp.MustCompile(`^/\S+$`).MatchString(name) {
			found = append(found, name)
		}
	}
	return found
}

// typed returns the shell's reply to a line. An emulated serial port lost a line once, so a line without the expected
// reply is typed again; the commands only read files.
func (r *rig) typed(t *testing.T, line string, want *regexp.Regexp) string {
	t.Helper()
	const tries, tryTimeout = 4, 2 * time.Minute
	console := r.machine.Console()
	var err error
	for range tries {
		mark := console.Mark()
		if err := console.Send(line); err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithTimeout(t.Context(), tryTimeout)
		match, failed := console.FollowFrom(ctx, mark, want)
		cancel()
		if failed == nil {
			return match.Groups[1]
		}
		err = failed
	}
	t.Fatal(err)
	return ""
}
