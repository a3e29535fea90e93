//go:build linux

package sudo

import (
	"bytes"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"

	"ironroot/internal/test/testenv"
	"ironroot/uinit/account"
)

func TestMain(m *testing.M) {
	euid := os.Geteuid()
	Child()
	if filepath.Base(os.Args[0]) == "other" {
		if os.Geteuid() == euid && os.Getuid() != euid {
			os.Exit(5) // it has kept its rights
		}
		_, err := os.ReadFile("/etc/shadow")
		if !errors.Is(err, os.ErrPermission) || syscall.Setuid(0) == nil {
			os.Exit(6)
		}
		os.Exit(0)
	}
	os.Exit(m.Run())
}

// setuid installs this program setuid root under some names, on a file system that allows it.
func setuid(t *testing.T, names ...string) string {
	t.Helper()
	testenv.Root(t)
	dir, err := os.MkdirTemp("", "sudo") //nolint:usetesting // only root can reach that directory
	if err != nil {
		t.Fatal(err)
	}
	if err := unix.Mount("tmpfs", dir, "tmpfs", 0, "mode=0755"); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := errors.Join(unix.Unmount(dir, unix.MNT_DETACH), os.Remove(dir)); err != nil {
			t.Error(err)
		}
	})
	self, err := os.ReadFile("/proc/self/exe")
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range names {
		path := filepath.Join(dir, name)
		if err := errors.Join(os.WriteFile(path, self, 0o755), os.Chmod(path, 0o755|os.ModeSetuid)); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

type result struct {
	out    string
	status int
}

// as runs a program with the numbers of a user. The output contains errors, too.
func as(t *testing.T, uid uint32, groups []uint32, program string, args ...string) result {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), program, args...)
	cmd.Dir = "/"
	cmd.Env = []string{
		"PATH=/evil:/usr/bin:/bin", "LD_PRELOAD=/evil.so", "TERM=xterm", "LC_ALL=C", "FOO=bar", "HOME=/evil",
	}
	if uid == 0 {
		cmd.Env = slices.DeleteFunc(cmd.Env, func(entry string) bool { return strings.HasPrefix(entry, "LD_") })
	}
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: uid, Gid: uid, Groups: groups}}
	out, err := cmd.CombinedOutput()
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) {
		t.Fatal(err)
	}
	return result{string(out), cmd.ProcessState.ExitCode()}
}

// Members of the group become any user, others become nobody else, under whatever name they run the file.
func TestRights(t *testing.T) {
	dir := setuid(t, "sudo", "other")
	sudo, members, others := filepath.Join(dir, "sudo"), []uint32{account.SudoGroup}, []uint32{4, 28}
	for _, tt := range []struct {
		groups []uint32
		args   []string
		want   result
	}{
		{members, []string{"id", "-u"}, result{"0\n", 0}},
		{members, []string{"id", "-ru"}, result{"0\n", 0}},
		{members, []string{"-n", "id", "-G"}, result{"0\n", 0}},
		{members, []string{"-u", "nobody", "id", "-un"}, result{"nobody\n", 0}},
		{members, []string{"-u", "nobody", "id", "-G"}, result{"65534\n", 0}},
		{members, []string{"-u#65534", "id", "-ru"}, result{"65534\n", 0}},
		{members, []string{"-u", "missing", "id"}, result{"sudo: unknown user \"missing\"\n", 1}},
		{members, []string{"sh", "-c", "exit 42"}, result{"", 42}},
		{members, []string{"missing-program"}, result{"sudo: missing-program: command not found\n", 1}},
		{members, []string{"/missing/program"}, result{"sudo: /missing/program: no such file or directory\n", 127}},
		{members, []string{"/etc/passwd"}, result{"sudo: /etc/passwd: permission denied\n", 126}},
		{members, []string{"-v"}, result{"", 0}},
		{others, []string{"id"}, result{"sudo: user 1000 is not in the group sudo (27)\n", 1}},
		{others, []string{"-v"}, result{"sudo: user 1000 is not in the group sudo (27)\n", 1}},
		{nil, []string{"-l"}, result{"sudo: user 1000 is not in the group sudo (27)\n", 1}},
		{nil, []string{"-i"}, result{"sudo: user 1000 is not in the group sudo (27)\n", 1}},
	} {
		if got := as(t, 1000, tt.groups, sudo, tt.args...); got != tt.want {
			t.Errorf("%v, groups %v: got %+v, want %+v", tt.args, tt.groups, got, tt.want)
		}
	}
	if got := as(t, 1000, members, filepath.Join(dir, "other")); got.status != 0 {
		t.Errorf("another name: got %+v, want the rights given up", got)
	}
	if err := os.Chmod(sudo, 0o755); err != nil {
		t.Fatal(err)
	}
	if got := as(t, 1000, members, sudo, "id"); got.status != 1 || !strings.Contains(got.out, "must be setuid root") {
		t.Errorf("without the mode: got %+v, want an error", got)
	}
	if got := as(t, 0, nil, sudo, "id", "-u"); got != (result{"0\n", 0}) {
		t.Errorf("root: got %+v", got)
	}
}

// The environment of the caller is not that of the program.
func TestEnvironment(t *testing.T) {
	sudo := filepath.Join(setuid(t, "sudo"), "sudo")
	want := "FOO=x y\nHOME=/root\nLC_ALL=C\nLOGNAME=root\nPATH=" + account.SearchPath +
		"\nSHELL=/bin/bash\nSUDO_GID=4242\nSUDO_UID=4242\nSUDO_USER=#4242\nTERM=xterm\nUSER=root\n"
	if got := as(t, 4242, []uint32{account.SudoGroup}, sudo, "FOO=x y", "env"); got != (result{want, 0}) {
		t.Errorf("environment differs (-want +got):\n%s", cmp.Diff(want, got.out))
	}
	got := as(t, 4242, []uint32{account.SudoGroup}, sudo, "-E", "env").out
	if !strings.Contains(got, "FOO=bar\n") || !strings.Contains(got, "PATH="+account.SearchPath+"\n") {
		t.Errorf("-E: got %s, want the variables of the caller without the search path", got)
	}
}

// Debian's sudo gives the same output and exit status.
func TestAgainstDebian(t *testing.T) {
	testenv.Files(t, "apt-get install sudo", "/usr/bin/sudo")
	sudo := filepath.Join(setuid(t, "sudo"), "sudo")
	for _, args := range [][]string{
		{"-s", "printf", "%s|", "a b", "$HOME", "'quoted'", `"x"`, `back\slash`, "*", "a;b&c", "ä"},
		{"-i", "pwd"},
		{"-i", "printf", "%s|", "$0", "$USER"},
		{"-u", "daemon", "-H", "-S", "-n", "-p", "prompt", "sh", "-c", "echo $HOME $USER $LOGNAME; id"},
		{"-nSHu", "daemon", "--", "id", "-un"},
		{"--user=daemon", "id", "-un"},
		{"--user", "daemon", "--non-interactive", "A=1", "B=2 3", "sh", "-c", `echo "$A$B"`},
		{"-n", "sh", "-c", "kill -TERM $$"},
		{"-s", "exit", "9"},
	} {
		want, got := as(t, 0, nil, "/usr/bin/sudo", args...), as(t, 0, nil, sudo, args...)
		if got != want {
			t.Errorf("%q: got %+v, want %+v", args, got, want)
		}
	}
}

func TestParse(t *testing.T) {
	for line, want := range map[string]*request{
		"id -u x":               {user: "root", args: []string{"id", "-u", "x"}},
		"-u a -i":               {user: "a", login: true, args: []string{}},
		"-ua -s x":              {user: "a", shell: true, args: []string{"x"}},
		"-nEua A=1 =2 x":        {user: "a", keep: true, variables: []string{"A=1"}, args: []string{"=2", "x"}},
		"--preserve-env=A,B x":  {user: "root", keep: true, args: []string{"x"}},
		"-- -x":                 {user: "root", args: []string{"-x"}},
		"-k -p prompt true":     {user: "root", args: []string{"true"}},
		"-l":                    {user: "root", list: true, args: []string{}},
		"--help":                {user: "root", help: true, args: []string{}},
		"":                      nil,
		"-u":                    nil,
		"--user":                nil,
		"-i -s":                 nil,
		"-x id":                 nil,
		"-e /etc/passwd":        nil,
		"--nonsense id":         nil,
		"--login=yes id":        nil,
		"-l --login=yes":        nil,
		"-l --user":             nil,
		"-lx":                   nil,
		"-l --nonsense":         nil,
		"-n A=1":                nil,
		"-R /x id":              nil,
		"--chroot=/x id":        nil,
		"--user= id":            {user: "", args: []string{"id"}},
		"-u a -u b id":          {user: "b", args: []string{"id"}},
		"--non-interactive - x": {user: "root", args: []string{"-", "x"}},
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

// A shell parses a quoted line to the same words, except for variables.
func FuzzQuote(f *testing.F) {
	f.Add("a b", "c'd\"e")
	f.Add("\n", "\\\t;&|<>()`*?[]{}~#!")
	f.Add("", "ä\xff")
	f.Fuzz(func(t *testing.T, first, second string) {
		args := []string{first, second}
		for _, arg := range args {
			if arg == "" || strings.ContainsAny(arg, "$\x00") {
				return // $ is not quoted, and empty words disappear, as with sudo(8)
			}
		}
		cmd := exec.CommandContext(t.Context(), "/bin/sh", "-c", `printf '%s\0' `+quote(args))
		out, err := cmd.Output()
		if want := []byte(first + "\x00" + second + "\x00"); err != nil || !bytes.Equal(out, want) {
			t.Errorf("got %q, %v, want %q", out, err, want)
		}
	})
}

// Any arguments are parsed or an error, and options never reach the program.
func FuzzParse(f *testing.F) {
	f.Add("-nu\x00root\x00A=1\x00id")
	f.Add("--user=x\x00--\x00-i")
	f.Fuzz(func(t *testing.T, joined string) {
		args := strings.Split(joined, "\x00")
		r, err := parse(args)
		if err == nil && !slices.Equal(r.args, args[len(args)-len(r.args):]) {
			t.Errorf("%q: got program %q", args, r.args)
		}
	})
}
