//go:build linux

package sudo

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/google/go-cmp/cmp"

	"ironroot/internal/test/testenv"
)

func TestMain(m *testing.M) {
	Child()
	os.Exit(m.Run())
}

type result struct {
	out    string // with errors
	status int
}

// command runs a program with an environment that root does not have.
func command(t *testing.T, program string, args ...string) result {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), program, args...)
	cmd.Dir = "/"
	cmd.Env = []string{
		"PATH=/usr/bin:/bin", "TERM=xterm", "SHELL=/bin/bash", "FOO=bar", "HOME=/home/rescue",
		"USER=rescue", "LOGNAME=rescue",
	}
	out, err := cmd.CombinedOutput()
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) {
		t.Fatal(err)
	}
	return result{string(out), cmd.ProcessState.ExitCode()}
}

// installed returns the path of this program under the name sudo.
func installed(t *testing.T) string {
	t.Helper()
	link := filepath.Join(t.TempDir(), "sudo")
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(self, link); err != nil {
		t.Fatal(err)
	}
	return link
}

// A user of a userland who is not root gets no programs, and no success.
func TestOtherUser(t *testing.T) {
	testenv.Root(t)
	for _, arg := range []string{"id", "-l", "-v"} {
		cmd := exec.CommandContext(t.Context(), "/proc/self/exe")
		cmd.Args, cmd.Dir = []string{name, arg}, "/"
		cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: 65534, Gid: 65534}}
		out, err := cmd.CombinedOutput()
		if got, want := string(out), "sudo: only root can run programs as root\n"; err == nil || got != want {
			t.Errorf("%s: got %v and %q, want %q", arg, err, got, want)
		}
	}
}

func TestRun(t *testing.T) {
	sudo := installed(t)
	other := "sudo: option -u: user \"nobody\" not supported, only root\n" + usage + "\n"
	for _, tt := range []struct {
		args []string
		want result
	}{
		{[]string{"sh", "-c", "exit 42"}, result{"", 42}},
		{[]string{"FOO=x y", "sh", "-c", "echo $FOO $HOME $USER $LOGNAME"}, result{"x y /root root root\n", 0}},
		{[]string{"-E", "sh", "-c", "echo $FOO"}, result{"bar\n", 0}},
		{[]string{"-n", "true"}, result{"", 0}},
		{[]string{"-v"}, result{"", 0}},
		{[]string{"-h"}, result{usage + "\n", 0}},
		{[]string{"missing-program"}, result{"sudo: missing-program: command not found\n", 1}},
		{[]string{"/missing/program"}, result{"sudo: /missing/program: command not found\n", 1}},
		{[]string{"-unobody", "id"}, result{other, 1}},
	} {
		if got := command(t, sudo, tt.args...); got != tt.want {
			t.Errorf("%q: got %+v, want %+v", tt.args, got, tt.want)
		}
	}
}

// Debian's sudo gives the same output and exit status to root.
func TestAgainstDebian(t *testing.T) {
	testenv.Root(t)
	testenv.Files(t, "apt-get install sudo", "/usr/bin/sudo")
	sudo := installed(t)
	for _, args := range [][]string{
		{"-i", "pwd"},
		{"-i", "printf", "%s|", "a b", "'quoted'", `"x"`, `back\slash`, "*", "a;b&c", "ä"},
		{"-s", "printf", "%s|", "a b"},
		{"-u", "root", "-H", "-S", "-n", "-p", "prompt", "sh", "-c", "echo $HOME $USER $LOGNAME; id"},
		{"-nSHu", "root", "--", "id", "-un"},
		{"-uroot", "id", "-un"},
		{"-u#0", "id", "-un"},
		{"--user=root", "id", "-un"},
		{"--user", "root", "--non-interactive", "A=1", "B=2 3", "sh", "-c", `echo "$A$B"`},
		{"-n", "sh", "-c", "kill -TERM $$"},
		{"missing-program"},
		{"/etc/passwd"},
	} {
		want, got := command(t, "/usr/bin/sudo", args...), command(t, sudo, args...)
		if got != want {
			t.Errorf("%q: got %+v, want %+v", args, got, want)
		}
	}
}

func TestParse(t *testing.T) {
	for line, want := range map[string]*request{
		"id -u x":               {args: []string{"id", "-u", "x"}},
		"-u root -i":            {login: true, args: []string{}},
		"-uroot -s x":           {shell: true, args: []string{"x"}},
		"-nEuroot A=1 =2 x":     {variables: []string{"A=1"}, args: []string{"=2", "x"}},
		"--preserve-env=A,B x":  {args: []string{"x"}},
		"-- -x":                 {args: []string{"-x"}},
		"-k -p prompt true":     {args: []string{"true"}},
		"-nl":                   {check: true, args: []string{}},
		"--help":                {help: true, args: []string{}},
		"--non-interactive - x": {args: []string{"-", "x"}},
		"":                      nil,
		"-u":                    nil,
		"--user":                nil,
		"-x id":                 nil,
		"-e /etc/passwd":        nil,
		"--nonsense id":         nil,
		"-l --user":             nil,
		"-lx":                   nil,
		"-n A=1":                nil,
		"-R /x id":              nil,
		"--chroot=/x id":        nil,
		"-u nobody id":          nil,
		"-u#1 id":               nil,
		"-u nobody -u root id":  nil,
	} {
		got, err := parse(strings.Fields(line))
		if (err != nil) != (want == nil) {
			t.Errorf("%q: got %+v, %v, want %+v", line, got, err, want)
			continue
		}
		if diff := cmp.Diff(want, got, cmp.AllowUnexported(request{})); want != nil && diff != "" {
			t.Errorf("%q differs (-want +got):\n%s", line, diff)
		}
	}
}

// Any arguments are parsed or an error, and options never reach the program.
func FuzzParse(f *testing.F) {
	f.Add("-nu\x00root\x00A=1\x00id")
	f.Add("--user=root\x00--\x00-i")
	f.Fuzz(func(t *testing.T, joined string) {
		args := strings.Split(joined, "\x00")
		r, err := parse(args)
		if err == nil && !slices.Equal(r.args, args[len(args)-len(r.args):]) {
			t.Errorf("%q: got program %q", args, r.args)
		}
	})
}
