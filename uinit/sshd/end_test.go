//go:build linux

package sshd

import (
	"strings"
	"testing"

	"ironroot/uinit/account"
)

// A shell that does not exist ends the session with an error. Sessions that end are no interruptions in the log.
func TestMissingShell(t *testing.T) {
	r := newRig(t, func(list *account.List, _ *limits) { (*list)[0].Shell = "/bin/missing" })
	got := r.ssh("true")
	if got.status != exitNotRun || !strings.Contains(got.err, "ironroot: start /bin/missing: ") {
		t.Errorf("got %+v, want status %d and the reason", got, exitNotRun)
	}
	r.log.find(t, `msg="session not started" user=rescue`)
	r.want(r.run(r.command(rootSecret, "ssh", "root@127.0.0.1", "echo out")), result{out: "out\n"})
	r.log.find(t, `msg="session ended" user=root`)
	if text := r.log.String(); strings.Contains(text, "session interrupted") {
		t.Errorf("got an interruption in the log:\n%s", text)
	}
}
