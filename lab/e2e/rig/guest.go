//go:build linux

package rig

import (
	"context"
	"fmt"
	"regexp"
	"strings"
	"testing"
	"time"

	"ironroot/internal/test/testenv"
	"ironroot/lab/qemu"
)

// Logs returns the files in the agent's log archive.
func (r *Rig) Logs(t *testing.T) map[string]string {
	t.Helper()
	if err := r.Node.CollectLogs(Soon(t)); err != nil {
		t.Fatal(err)
	}
	return testenv.Untar(t, r.Node.Logs())
}

// SearchGuest searches the guest's own files, and the environment and arguments of process 1, for secrets. It uses
// the shell on the console, which requires the parameter ironroot.shell=1.
func (r *Rig) SearchGuest(t *testing.T, secrets ...string) {
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
func (r *Rig) grep(t *testing.T, question int, text, places string) []string {
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
func (r *Rig) typed(t *testing.T, line string, want *regexp.Regexp) string {
	t.Helper()
	const tries, tryTimeout = 4, 2 * time.Minute
	console := r.Machine.Console()
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
