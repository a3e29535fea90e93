package extension

import (
	"encoding/json"
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"ironroot/agent/command"
	"ironroot/agent/fault"
	"ironroot/agent/journal"
	"ironroot/agent/rescue"
)

// mkpasswd are hashes of "secret" by mkpasswd(1).
var mkpasswd = []string{
	"$5$l0ywjswQqnVFlZM0$GZOlSnCia3FWfVVltWwkxAFSrcOqSHI0IVxBNdFiQcB",
	"$6$im0yPEn0RYz3e4o6$w8wreEuWafhODt/w5XX9gBJjfWrrRK2BXiiMmQFVgyk1q7NliLqSJqLlYGrhzHcN9ZOf4hU3FRyRWd6NZ0iQ2.",
	"$y$j9T$NPhu1vSeDfuMuAXsevOWa/$7c1nir.vsBvlgVVhIAVYnYWqHGgAZcGYCnlJEcjgSdC",
	"$2b$05$D6Ke11Y2oH5nMMmCPFF/W.0KTdidV2PZSXWdA4oVBH6.xHRdbII3O",
}

// rescueRig returns the command, and what it controls.
func rescueRig(t *testing.T) (command.Command, *rig, *control) {
	r := newRig(t)
	c := &control{}
	r.deps.Control, r.deps.Journal = c, journal.New(io.Discard, nil, 1<<10)
	return find(t, rescuing(r.deps), "finalize_rescue"), r, c
}

func rescueParams(t *testing.T, password, hashed any) command.Params {
	t.Helper()
	p := command.Params{}
	for name, value := range map[string]any{"rescue_password": password, "hashed": hashed} {
		text, err := json.Marshal(value)
		if err != nil {
			t.Fatal(err)
		}
		if value != nil {
			p[name] = text
		}
	}
	return p
}

// A rescue stores the hash of the password, as it is or of a plain one, and ends the API.
//
// Parity: E10
func TestFinalizeRescue(t *testing.T) {
	calls := []command.Params{rescueParams(t, "secret", false), rescueParams(t, "secret", nil)}
	for _, hash := range mkpasswd {
		calls = append(calls, rescueParams(t, hash, true))
	}
	for _, p := range calls {
		finalize, r, c := rescueRig(t)
		result, err := finalize.Call(t.Context(), p)
		if result != nil || err != nil || c.rescues != 1 || !finalize.Destructive || !finalize.Last || finalize.Async {
			t.Errorf("got %v, %v and %d rescues, want one of a destructive command that is the last one",
				result, err, c.rescues)
		}
		stored, err := rescue.Load(r.deps.System.Path)
		if err != nil || !stored.Matches([]byte("secret")) || stored.Matches([]byte("Secret")) {
			t.Errorf("%v: the stored hash is not that of the password: %v", stored, err)
		}
		if !rescue.IsMarked(r.deps.System.Path) {
			t.Error("the machine is not marked")
		}
	}
}

// A password that cannot be used is an error of the request that does not contain it. The agent continues.
//
// Parity: E10
func TestFinalizeRescueRejected(t *testing.T) {
	long := strings.Repeat("planted", 100)
	for name, p := range map[string]command.Params{
		"no password":      rescueParams(t, nil, nil),
		"no hash":          rescueParams(t, nil, true),
		"unknown format":   rescueParams(t, "$1$salt$planted", true),
		"plain, as a hash": rescueParams(t, "planted", true),
		"cut":              rescueParams(t, "$6$salt$planted", true),
		"expensive":        rescueParams(t, "$5$rounds=999999999$planted$"+strings.Repeat("x", 43), true),
		"too long":         rescueParams(t, long, false),
		"a number":         rescueParams(t, 7, false),
		"no boolean":       rescueParams(t, "planted", "planted"),
	} {
		finalize, r, c := rescueRig(t)
		_, err := finalize.Call(t.Context(), p)
		if !fault.IsInvalidContent(err) || strings.Contains(err.Error(), "planted") {
			t.Errorf("%s: got error %v, want one of the request, without the password", name, err)
		}
		if c.rescues != 0 || rescue.IsMarked(r.deps.System.Path) {
			t.Errorf("%s: the rescue began", name)
		}
	}
}

// A machine that nobody could log in to, for example, is not handed over: the command fails, and stores nothing.
//
// Parity: E10
func TestFinalizeRescueNotPossible(t *testing.T) {
	finalize, r, c := rescueRig(t)
	c.prepareErr = errors.New("nobody could log in: no shell")
	_, err := finalize.Call(t.Context(), rescueParams(t, mkpasswd[0], true))
	const want = "Command execution failed: rescue not possible: nobody could log in: no shell"
	if got := fault.From(err); got == nil || got.Type != "CommandExecutionError" || got.Error() != want {
		t.Errorf("got error %v, want %s", got, want)
	}
	if _, err := rescue.Load(r.deps.System.Path); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("hash of the password: got %v, want that it is not stored", err)
	}
	if c.rescues != 0 || rescue.IsMarked(r.deps.System.Path) {
		t.Error("the rescue began")
	}
}

// A password that cannot be stored fails the command.
//
// Parity: E10
func TestFinalizeRescueFails(t *testing.T) {
	finalize, r, c := rescueRig(t)
	if err := os.WriteFile(filepath.Join(r.deps.System.Path, "etc"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	_, err := finalize.Call(t.Context(), rescueParams(t, mkpasswd[0], true))
	if err == nil || fault.IsInvalidContent(err) || strings.Contains(err.Error(), mkpasswd[0]) || c.rescues != 0 {
		t.Errorf("got error %v and %d rescues, want that the command failed", err, c.rescues)
	}
}
