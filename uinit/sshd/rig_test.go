//go:build linux

package sshd

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"ironroot/internal/password"
	"ironroot/internal/test/testenv"
	"ironroot/uinit/account"
	"ironroot/uinit/worker"
)

// eventTimeout limits the wait for an event.
const eventTimeout = 3 * time.Minute

// secret is the password of the users of the tests, except rootSecret.
const (
	secret     = "correct horse"
	rootSecret = "battery staple"
)

func TestMain(m *testing.M) {
	worker.Child()
	Child()
	os.Exit(m.Run())
}

// lineLog collects log lines.
type lineLog struct {
	mu    sync.Mutex
	cond  *sync.Cond
	lines []string
}

// Write implements [io.Writer].
func (l *lineLog) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.lines = append(l.lines, strings.TrimSpace(string(p)))
	l.cond.Broadcast()
	return len(p), nil
}

// find waits until a line contains a text and returns the line.
func (l *lineLog) find(t *testing.T, text string) string {
	t.Helper()
	timer := time.AfterFunc(eventTimeout, l.cond.Broadcast)
	defer timer.Stop()
	end := time.Now().Add(eventTimeout)
	l.mu.Lock()
	defer l.mu.Unlock()
	for {
		for _, line := range l.lines {
			if strings.Contains(line, text) {
				return line
			}
		}
		if !time.Now().Before(end) {
			t.Fatalf("no log line contains %q:\n%s", text, strings.Join(l.lines, "\n"))
		}
		l.cond.Wait()
	}
}

func (l *lineLog) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return strings.Join(l.lines, "\n")
}

// rig is a server with the clients of OpenSSH.
type rig struct {
	t      *testing.T
	dir    string // of the client
	home   string // of the user rescue
	port   string
	server *Server
	log    *lineLog
}

// hash returns a hash whose check takes little time.
func hash(t *testing.T, text string) password.Hash {
	t.Helper()
	out := testenv.Run(t, "mkpasswd", "-m", "sha256crypt", "-R", "1000", text)
	h, err := password.Parse(strings.TrimSpace(out))
	if err != nil {
		t.Fatal(err)
	}
	return h
}

// newRig starts a server with the users rescue and root.
func newRig(t *testing.T, change func(*account.List, *limits)) *rig {
	t.Helper()
	testenv.Root(t)
	testenv.Programs(t, "ssh", "sftp", "scp", "ssh-keygen", "ssh-keyscan", "mkpasswd", "bash")
	r := &rig{t: t, dir: t.TempDir(), log: &lineLog{}}
	r.log.cond = sync.NewCond(&r.log.mu)
	rescue := account.Rescue(hash(t, secret), "/bin/bash", "")
	r.home = t.TempDir()
	rescue.Home = r.home
	root := account.Root(hash(t, rootSecret), nil, "/bin/bash")
	root.Home = t.TempDir()
	list, l := account.List{rescue, root}, defaultLimits
	if change != nil {
		change(&list, &l)
	}
	secrets := []string{secret, rootSecret, rescue.Hash.Text(), root.Hash.Text()}
	log := slog.New(slog.NewTextHandler(r.log, &slog.HandlerOptions{Level: slog.LevelDebug}))
	server, err := start(context.Background(), Options{Accounts: list, Address: "127.0.0.1:0", Log: log}, l)
	if err != nil {
		t.Fatal(err)
	}
	r.server = server
	t.Cleanup(func() {
		if err := server.Stop(); err != nil {
			t.Error(err)
		}
		if t.Failed() {
			t.Logf("log of the server:\n%s", r.log)
		}
		for _, secret := range secrets {
			if strings.Contains(r.log.String(), secret) {
				t.Errorf("the log contains %q", secret)
			}
		}
	})
	_, r.port, _ = net.SplitHostPort(server.address.String())
	r.write("askpass", "#!/bin/sh\necho \"$ASK_PASSWORD\"\n", 0o755)
	r.scan()
	return r
}

func (r *rig) write(name, content string, mode os.FileMode) string {
	r.t.Helper()
	path := filepath.Join(r.dir, name)
	if err := os.WriteFile(path, []byte(content), mode); err != nil {
		r.t.Fatal(err)
	}
	return path
}

// scan writes the host keys that ssh-keyscan receives to the client's known hosts.
func (r *rig) scan() {
	r.t.Helper()
	cmd := exec.CommandContext(r.t.Context(), "ssh-keyscan", "-T", "60", "-p", r.port, "127.0.0.1")
	out, err := cmd.Output()
	if err != nil {
		r.t.Fatal(err)
	}
	r.write("known", string(out), 0o600)
}

// options are the options of all clients.
func (r *rig) options() []string {
	return []string{
		"-F", "none", "-o", "UserKnownHostsFile=" + filepath.Join(r.dir, "known"), "-o", "StrictHostKeyChecking=yes",
		"-o", "IdentityFile=none", "-o", "IdentityAgent=none", "-o", "NumberOfPasswordPrompts=1",
		"-o", "Port=" + r.port, "-o", "LogLevel=ERROR",
	}
}

// command returns a client's command that answers questions for a password.
func (r *rig) command(given, program string, args ...string) *exec.Cmd {
	cmd := exec.CommandContext(r.t.Context(), program, append(r.options(), args...)...)
	cmd.Env = append(os.Environ(), "SSH_ASKPASS="+filepath.Join(r.dir, "askpass"), "SSH_ASKPASS_REQUIRE=force",
		"ASK_PASSWORD="+given, "LC_ALL=C", "TERM=xterm-256color")
	return cmd
}

// result is the result of a command.
type result struct {
	out, err string
	status   int
}

func (r *rig) run(cmd *exec.Cmd) result {
	r.t.Helper()
	var out, stderr bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &stderr
	err := cmd.Run()
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) {
		r.t.Fatal(err)
	}
	return result{out.String(), stderr.String(), cmd.ProcessState.ExitCode()}
}

// ssh runs ssh as the user rescue.
func (r *rig) ssh(args ...string) result {
	r.t.Helper()
	return r.run(r.command(secret, "ssh", append([]string{"rescue@127.0.0.1"}, args...)...))
}

// want fails the test if a command had another result.
func (r *rig) want(got, want result) {
	r.t.Helper()
	if got != want {
		r.t.Errorf("got %+v, want %+v", got, want)
	}
}

// highWater returns the largest memory of a process so far, in bytes.
func (r *rig) highWater(pid int) int64 {
	r.t.Helper()
	status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		r.t.Fatal(err)
	}
	_, text, _ := strings.Cut(string(status), "VmHWM:")
	var kilobytes int64
	if _, err := fmt.Sscan(text, &kilobytes); err != nil {
		r.t.Fatal(err)
	}
	return kilobytes << 10
}

// serverProcess returns the number of the server's process, which is the only one of this name below this process.
func (r *rig) serverProcess() int {
	r.t.Helper()
	for _, supervisor := range r.children(os.Getpid()) {
		for _, pid := range r.children(supervisor) {
			line, err := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", pid))
			if err == nil && string(line) == "sshd\x00" {
				return pid
			}
		}
	}
	r.t.Fatal("the server's process is not found")
	return 0
}

func (r *rig) children(parent int) []int {
	out, _ := exec.Command("ps", "-o", "pid=", "--ppid", fmt.Sprint(parent)).Output() // fails if there are none
	var list []int
	for _, field := range strings.Fields(string(out)) {
		var pid int
		if _, err := fmt.Sscan(field, &pid); err == nil {
			list = append(list, pid)
		}
	}
	return list
}
