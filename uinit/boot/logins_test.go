//go:build linux

package boot

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"ironroot/agent/config"
)

// A key of ssh-keygen(1), and a hash of "secret" by mkpasswd(1).
const (
	testKey  = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIIMFNe7U6LqktUQ0MklVaAHJmJ5ZXJWxOwqmzYnaLVOI operator@example"
	testHash = "$6$im0yPEn0RYz3e4o6$w8wreEuWafhODt/w5XX9gBJjfWrrRK2BXiiMmQFVgyk1q7NliLqSJqLlYGrhzHcN9ZOf4hU3FRyRWd6N" +
		"Z0iQ2."
	keyParameter, passwordParameter = `sshkey="` + testKey + `"`, `rootpwd="` + testHash + `"`
)

// Operators can log in with what the kernel command line and the image allow, and with nothing else. An invalid value
// allows nothing, and its text is in no error.
func TestOperators(t *testing.T) {
	for name, c := range map[string]struct {
		cmdline  string
		file     string // of keys; "" = none
		keys     int
		password bool
		want     []string // in the error
	}{
		"nothing":  {cmdline: "console=ttyS0 quiet"},
		"empty":    {cmdline: "sshkey= rootpwd="},
		"key":      {cmdline: keyParameter + " quiet", keys: 1},
		"password": {cmdline: passwordParameter, password: true},
		"unquoted": {cmdline: "rootpwd=" + testHash, password: true},
		"file":     {cmdline: "quiet", file: "# operators\n" + testKey + "\n" + testKey + "\n", keys: 2},
		"all":      {cmdline: passwordParameter + " " + keyParameter, file: testKey, keys: 2, password: true},
		"no key": {
			cmdline: `sshkey="ssh-ed25519 planted" ` + passwordParameter, password: true, want: []string{"sshkey"},
		},
		"no hash":  {cmdline: keyParameter + " rootpwd=planted", keys: 1, want: []string{"rootpwd"}},
		"MD5":      {cmdline: `rootpwd=$1$planted$x`, want: []string{"rootpwd", "MD5"}},
		"bad file": {cmdline: keyParameter, file: testKey + "\nplanted\n", keys: 1, want: []string{"line 2"}},
		"large file": {
			file: strings.Repeat("#", 1<<20-len(testKey)-1) + "\n" + testKey,
			want: []string{"root/.ssh/authorized_keys: more than 262144 bytes"},
		},
	} {
		root := t.TempDir()
		if c.file != "" {
			name := filepath.Join(root, "root/.ssh/authorized_keys")
			if err := os.MkdirAll(filepath.Dir(name), 0o700); err != nil {
				t.Fatal(err)
			}
			if err := os.WriteFile(name, []byte(c.file), 0o600); err != nil {
				t.Fatal(err)
			}
		}
		hash, keys, err := operators(config.ParseCmdline(c.cmdline), root)
		if len(keys) != c.keys || hash.Matches([]byte("secret")) != c.password || hash.IsZero() == c.password {
			t.Errorf("%s: got %d keys and %v, want %d, and a password %v", name, len(keys), hash, c.keys, c.password)
		}
		if (err != nil) != (c.want != nil) {
			t.Errorf("%s: got error %v, want one with %q", name, err, c.want)
		}
		for _, want := range c.want {
			if err != nil && !strings.Contains(err.Error(), want) {
				t.Errorf("%s: got error %v, want %q", name, err, want)
			}
		}
		if err != nil && strings.Contains(err.Error(), "planted") {
			t.Errorf("%s: the error contains the text: %v", name, err)
		}
	}
}

// Logins that have ended do not begin again.
func TestLoginsEnd(t *testing.T) {
	var l logins
	var calls []string
	start := func(name string) error {
		return l.start(func() (func() error, error) {
			calls = append(calls, "start "+name)
			return func() error {
				calls = append(calls, "stop "+name)
				return errors.New(name + " still running")
			}, nil
		})
	}
	failed := errors.New("address in use")
	if err := l.start(func() (func() error, error) { return nil, failed }); !errors.Is(err, failed) {
		t.Errorf("got %v, want %v", err, failed)
	}
	if err := errors.Join(start("server"), start("prompts")); err != nil {
		t.Error(err)
	}
	err := l.end()
	if err == nil || !strings.Contains(err.Error(), "server still running") ||
		!strings.Contains(err.Error(), "prompts still running") {
		t.Errorf("got %v, want both errors", err)
	}
	if err := errors.Join(start("again"), l.end()); err != nil {
		t.Error(err)
	}
	if want := []string{"start server", "start prompts", "stop server", "stop prompts"}; !slices.Equal(calls, want) {
		t.Errorf("got calls %q, want %q", calls, want)
	}
}

func TestFindShell(t *testing.T) {
	root := t.TempDir()
	if _, err := findShell(root); err == nil || !strings.Contains(err.Error(), root) {
		t.Errorf("without a shell: got %v, want an error with the directory", err)
	}
	for _, name := range []string{"/bin/sh", "/bbin/gosh", "/bin/bash"} { // the best one last
		path := filepath.Join(root, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, nil, 0o755); err != nil {
			t.Fatal(err)
		}
		if got, err := findShell(root); got != name || err != nil {
			t.Errorf("got %q, %v, want %s", got, err, name)
		}
	}
	if _, err := findShell(filepath.Join(root, "missing")); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("got %v, want that the directory does not exist", err)
	}
}
