//go:build linux

package sshd

import (
	"bufio"
	"bytes"
	"crypto/rand"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"

	"ironroot/internal/test/testenv"
	"ironroot/uinit/account"
)

// Commands without a terminal: both streams, input to its end, exit status and signals.
func TestCommands(t *testing.T) {
	r := newRig(t, nil)
	r.want(r.ssh("echo out; echo err >&2; exit 3"), result{"out\n", "err\n", 3})
	r.want(r.ssh("exit 200"), result{status: 200})
	r.want(r.ssh("printf '%s|' \"a  b\" '$HOME'"), result{out: "a  b|$HOME|"})
	r.want(r.ssh("missing-program"), result{err: "bash: line 1: missing-program: command not found\n", status: 127})
	r.want(r.ssh("kill -KILL $$"), result{status: 255})
	r.want(r.ssh("trap"), result{}) // bash lists the signals that it ignores since its start
	r.log.find(t, `status="signal: killed"`)
	got := r.run(r.command(secret, "ssh", "-v", "rescue@127.0.0.1", "kill -TERM $$"))
	if got.status != 255 || !strings.Contains(got.err, "rtype exit-signal") {
		t.Errorf("got %+v, want an exit signal", got)
	}
	got = r.run(r.command(secret, "ssh", "rescue@127.0.0.1", "kill -TRAP $$"))
	if want := 128 + int(unix.SIGTRAP); got.status != want {
		t.Errorf("got status %d, want %d for a signal that the protocol does not have", got.status, want)
	}

	data := make([]byte, 3<<20)
	_, _ = rand.Read(data)
	cmd := r.command(secret, "ssh", "rescue@127.0.0.1", "cat; echo end >&2")
	cmd.Stdin = bytes.NewReader(data)
	if got := r.run(cmd); got.out != string(data) || got.err != "end\n" || got.status != 0 {
		t.Errorf("got %d bytes, %q, %d, want %d bytes unchanged", len(got.out), got.err, got.status, len(data))
	}
	zero, err := os.Open("/dev/zero")
	if err != nil {
		t.Fatal(err)
	}
	defer zero.Close()
	cmd = r.command(secret, "ssh", "rescue@127.0.0.1", "exec <&-; true")
	cmd.Stdin = zero // never ends
	r.want(r.run(cmd), result{})
	// A process that has closed its output still reads all input.
	cmd = r.command(secret, "ssh", "rescue@127.0.0.1", "exec >&- 2>&-; sleep 1; cat > copy")
	cmd.Stdin = bytes.NewReader(data)
	r.want(r.run(cmd), result{})
	if copied, err := os.ReadFile(filepath.Join(r.home, "copy")); err != nil || !bytes.Equal(copied, data) {
		t.Errorf("got %d bytes, %v, want %d", len(copied), err, len(data))
	}
}

// A client sets the variables of the language only.
func TestVariables(t *testing.T) {
	r := newRig(t, nil)
	cmd := r.command(secret, "ssh", "-o", "SendEnv=LANG LC_* LD_* FOO PATH HOME", "-o", "SetEnv=LC_BAD=$(x) ENV=/tmp/x",
		"rescue@127.0.0.1", "exec env")
	cmd.Env = append(cmd.Env, "LC_ALL=de_DE.UTF-8", "LANG=C.UTF-8", "LD_PRELOAD=/tmp/evil.so", "FOO=bar",
		"LC_PAPER=a b")
	got := strings.Split(strings.TrimSpace(r.run(cmd).out), "\n")
	var names []string
	values := map[string]string{}
	for _, line := range got {
		name, value, _ := strings.Cut(line, "=")
		names = append(names, name)
		values[name] = value
	}
	want := []string{
		"HOME", "USER", "LOGNAME", "SHELL", "PATH", "LANG", "LC_ALL", "SSH_CLIENT", "SSH_CONNECTION", "PWD", "SHLVL",
	}
	less := func(list []string) []string {
		out := strings.Fields(strings.Join(list, " "))
		slices.Sort(out)
		return out
	}
	if diff := cmp.Diff(less(want), less(names)); diff != "" {
		t.Errorf("variables differ (-want +got):\n%s", diff)
	}
	if values["LC_ALL"] != "de_DE.UTF-8" || values["LANG"] != "C.UTF-8" || values["PATH"] != account.SearchPath {
		t.Errorf("got %v", values)
	}
	if want := " " + r.port; !strings.HasPrefix(values["SSH_CLIENT"], "127.0.0.1 ") ||
		!strings.HasSuffix(values["SSH_CONNECTION"], want) {
		t.Errorf("got %q, %q", values["SSH_CLIENT"], values["SSH_CONNECTION"])
	}
}

// window is a terminal of a client, with which ssh runs.
type window struct {
	*terminal
	cmd   *exec.Cmd
	lines *bufio.Reader
}

func (r *rig) window(args ...string) *window {
	r.t.Helper()
	w, err := newTerminal()
	if err != nil {
		r.t.Fatal(err)
	}
	r.t.Cleanup(w.close)
	if err := w.resize(windowSize{Columns: 101, Rows: 31}); err != nil {
		r.t.Fatal(err)
	}
	cmd := r.command(secret, "ssh", append([]string{"-t", "rescue@127.0.0.1"}, args...)...)
	cmd.Stdin, cmd.Stdout, cmd.Stderr = w.slave, w.slave, w.slave
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true, Setctty: true}
	if err := cmd.Start(); err != nil {
		r.t.Fatal(err)
	}
	_ = w.slave.Close()
	return &window{w, cmd, bufio.NewReader(w.master)}
}

// await reads until a line contains a text and returns the line.
func (w *window) await(t *testing.T, text string) string {
	t.Helper()
	if err := w.master.SetReadDeadline(time.Now().Add(eventTimeout)); err != nil {
		t.Fatal(err)
	}
	var all strings.Builder
	for {
		line, err := w.lines.ReadString('\n')
		all.WriteString(line)
		if strings.Contains(line, text) {
			return strings.TrimSpace(line)
		}
		if err != nil {
			t.Fatalf("no line contains %q: %v\n%q", text, err, all.String())
		}
	}
}

func (w *window) send(t *testing.T, text string) {
	t.Helper()
	if _, err := w.master.WriteString(text); err != nil {
		t.Fatal(err)
	}
}

// A login shell on a terminal: job control, size and its changes, modes, the terminal's device and its owner.
func TestTerminal(t *testing.T) {
	testenv.Programs(t, "stty")
	r := newRig(t, nil)
	profile := []byte("PS1='ready\\n'; echo profile $0\n")
	if err := os.WriteFile(filepath.Join(r.home, ".bash_profile"), profile, 0o644); err != nil {
		t.Fatal(err)
	}
	w := r.window()
	w.await(t, "profile -bash")
	w.await(t, "ready")
	w.send(t, "stty -echo; stty size; echo $TERM; tty; echo $SSH_TTY; ls -l $SSH_TTY; id -u\n")
	w.await(t, "31 101")
	w.await(t, "xterm-256color")
	device := w.await(t, "/dev/pts/")
	if again := w.await(t, "/dev/pts/"); again != device {
		t.Errorf("got SSH_TTY %s, want %s", again, device)
	}
	fields := strings.Fields(w.await(t, device))
	if len(fields) < 4 || fields[0] != "crw--w----" || fields[3] != "tty" {
		t.Errorf("got device %q, want that of the user", fields)
	}
	w.await(t, "0")
	var stat unix.Stat_t
	if err := unix.Stat(device, &stat); err != nil || stat.Uid != 0 || stat.Gid != 5 {
		t.Errorf("got owner %d:%d, %v, want 0:5", stat.Uid, stat.Gid, err)
	}
	w.await(t, "ready")
	w.send(t, `sh -c 'trap "stty size" WINCH; echo armed; while true; do sleep 0.1; done'`+"\n")
	w.await(t, "armed")
	if err := w.resize(windowSize{Columns: 77, Rows: 22}); err != nil {
		t.Fatal(err)
	}
	w.await(t, "22 77")
	w.send(t, "\x03") // Ctrl-C
	w.await(t, "ready")
	w.send(t, "echo status $?; stty -a; exit 7\n")
	w.await(t, "status 130")
	w.await(t, "intr = ^C")
	w.await(t, "iutf8")
	if err := w.cmd.Wait(); err == nil || w.cmd.ProcessState.ExitCode() != 7 {
		t.Errorf("got %v, want exit status 7", err)
	}
}

// Output on a terminal is not changed by the server, and the end of the input ends a program.
func TestTerminalIsTransparent(t *testing.T) {
	r := newRig(t, nil)
	const want = "a\nb\r\nc"
	cmd := r.command(secret, "ssh", "-tt", "rescue@127.0.0.1",
		`stty raw -echo; printf 'a\nb\r\nc'; head -c 1 >/dev/null`)
	in, inErr := cmd.StdinPipe()
	out, outErr := cmd.StdoutPipe()
	if err := errors.Join(inErr, outErr, cmd.Start()); err != nil {
		t.Fatal(err)
	}
	got := make([]byte, len(want))
	if _, err := io.ReadFull(out, got); err != nil || string(got) != want {
		t.Errorf("got %q, %v, want %q", got, err, want)
	}
	// The kernel can drop output that is not read when the first process of a terminal ends.
	if _, err := in.Write([]byte("x")); err != nil {
		t.Fatal(err)
	}
	if rest, err := io.ReadAll(out); len(rest) > 0 || err != nil {
		t.Errorf("got %q, %v, want nothing more", rest, err)
	}
	if err := cmd.Wait(); err != nil {
		t.Error(err)
	}
	cmd = r.command(secret, "ssh", "-tt", "rescue@127.0.0.1", "cat; exit 4")
	cmd.Stdin = strings.NewReader("")
	if got := r.run(cmd); got.status != 4 {
		t.Errorf("got %+v, want exit status 4", got)
	}
	r.want(r.run(r.command(secret, "ssh", "-tt", "rescue@127.0.0.1", "kill -HUP $$")), result{status: 255})
}

// alive reports whether a process runs.
func alive(pid int) bool {
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	return err == nil && !strings.Contains(string(stat), ") Z")
}

// awaitEnd waits until a process has ended.
func awaitEnd(t *testing.T, pid int) {
	t.Helper()
	fd, err := unix.PidfdOpen(pid, 0)
	if err != nil {
		return // it has
	}
	defer unix.Close(fd) //nolint:errcheck // only waited for
	poll := []unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}}
	for {
		n, err := unix.Poll(poll, int(eventTimeout.Milliseconds()))
		if err == unix.EINTR { //nolint:errorlint // not wrapped
			continue
		}
		if n != 1 {
			t.Errorf("process %d has not ended: %v", pid, err)
		}
		return
	}
}

// begin starts a command that prints numbers of processes, and returns them.
func (r *rig) begin(count int, args ...string) (*exec.Cmd, []int) {
	r.t.Helper()
	cmd := r.command(secret, "ssh", args...)
	out, err := cmd.StdoutPipe()
	if err != nil {
		r.t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		r.t.Fatal(err)
	}
	lines := bufio.NewReader(out)
	var pids []int
	for range count {
		line, err := lines.ReadString('\n')
		if err != nil {
			r.t.Fatal(err)
		}
		pid, err := strconv.Atoi(strings.TrimSpace(line))
		if err != nil {
			r.t.Fatal(err)
		}
		pids = append(pids, pid)
	}
	return cmd, pids
}

// When a client disappears, the processes of its sessions end, and those that were detached continue. When the server
// is stopped, none is left.
func TestDisconnect(t *testing.T) {
	testenv.Programs(t, "setsid")
	r := newRig(t, nil)
	const command = `sleep 1000 & echo $!; echo $$; ` +
		`setsid sh -c 'echo $$; exec sleep 1000 >/dev/null 2>&1' & wait`
	for _, flag := range []string{"-T", "-tt"} {
		cmd, pids := r.begin(3, flag, "rescue@127.0.0.1", command)
		if err := cmd.Process.Kill(); err != nil {
			t.Fatal(err)
		}
		_ = cmd.Wait()
		awaitEnd(t, pids[0])
		awaitEnd(t, pids[1])
		if !alive(pids[2]) {
			t.Errorf("%s: the detached process has ended", flag)
		}
		defer func() {
			if alive(pids[2]) {
				t.Errorf("%s: the detached process runs after the server was stopped", flag)
			}
		}()
	}
	// A process that ignores SIGHUP is killed.
	cmd, pids := r.begin(1, "-T", "rescue@127.0.0.1", `trap "" HUP PIPE; echo $$; while true; do sleep 1; done`)
	if err := cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = cmd.Wait()
	awaitEnd(t, pids[0])
	cmd, pids = r.begin(1, "-T", "rescue@127.0.0.1", `echo $$; exec sleep 1000`)
	if err := r.server.Stop(); err != nil {
		t.Error(err)
	}
	if alive(pids[0]) {
		t.Error("a session runs after the server was stopped")
	}
	_ = cmd.Wait()
	if got := r.ssh("true"); got.status != 255 || !strings.Contains(got.err, "refused") {
		t.Errorf("got %+v, want the port closed", got)
	}
}

// Signals of the client reach the process group of the session.
func TestSignals(t *testing.T) {
	r := newRig(t, nil)
	client := r.dial(t, "rescue", secret)
	defer client.Close()
	session, err := client.NewSession()
	if err != nil {
		t.Fatal(err)
	}
	out, err := session.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	err = session.Start(`trap 'echo got USR1; exit 9' USR1; echo ready; sleep 1000 >/dev/null 2>&1 & wait`)
	if err != nil {
		t.Fatal(err)
	}
	lines := bufio.NewReader(out)
	for _, want := range []string{"ready\n", "got USR1\n"} {
		if line, err := lines.ReadString('\n'); err != nil || line != want {
			t.Fatalf("got %q, %v, want %q", line, err, want)
		}
		if want == "ready\n" {
			if err := session.Signal("USR1"); err != nil {
				t.Fatal(err)
			}
		}
	}
	err = session.Wait()
	var exit interface{ ExitStatus() int }
	if exit, _ = err.(interface{ ExitStatus() int }); exit == nil || exit.ExitStatus() != 9 {
		t.Errorf("got %v, want exit status 9", err)
	}
}

// Nothing is forwarded, in either direction, and clients learn which variables are refused.
func TestNoForwarding(t *testing.T) {
	r := newRig(t, nil)
	got := r.run(r.command(secret, "ssh", "-W", "127.0.0.1:"+r.port, "rescue@127.0.0.1"))
	if got.status != 255 || !strings.Contains(got.err, "stdio forwarding failed") {
		t.Errorf("-W: got %+v, want it refused", got)
	}
	got = r.run(r.command(secret, "ssh", "-N", "-R", "0:127.0.0.1:1", "-o", "ExitOnForwardFailure=yes",
		"rescue@127.0.0.1"))
	if got.status != 255 || !strings.Contains(got.err, "remote port forwarding failed") {
		t.Errorf("-R: got %+v, want it refused", got)
	}
	client := r.dial(t, "rescue", secret)
	defer client.Close()
	session, err := client.NewSession()
	if err != nil {
		t.Fatal(err)
	}
	for _, kind := range []string{"auth-agent-req@openssh.com", "x11-req", "break", "nonsense"} {
		if ok, err := session.SendRequest(kind, true, nil); ok || err != nil {
			t.Errorf("%s: got %v, %v, want it refused", kind, ok, err)
		}
	}
	for name, allowed := range map[string]bool{"LANG": true, "LD_PRELOAD": false} {
		if err := session.Setenv(name, "C"); (err == nil) != allowed {
			t.Errorf("variable %s: got %v, want it allowed: %t", name, err, allowed)
		}
	}
}

// sftp runs commands of sftp.
func (r *rig) sftp(commands ...string) result {
	r.t.Helper()
	batch := r.write("batch", strings.Join(commands, "\n")+"\n", 0o600)
	return r.run(r.command(secret, "sftp", "-o", "BatchMode=no", "-b", batch, "rescue@127.0.0.1"))
}

// Files are copied in both directions, and neither of the server's processes needs memory in proportion to their size.
func TestLargeFile(t *testing.T) {
	r := newRig(t, nil)
	const size, most = 100 << 20, 80 << 20
	source, back := filepath.Join(r.dir, "source"), filepath.Join(r.dir, "back")
	target := filepath.Join(r.home, "target")
	want := randomFile(t, source, size)
	r.want(r.run(r.command(secret, "scp", "-q", source, "rescue@127.0.0.1:target")), result{})
	if got := digest(t, target); got != want {
		t.Error("the uploaded file differs")
	}
	cmd := r.command(secret, "sftp", "-q", "rescue@127.0.0.1")
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	if _, err := fmt.Fprintf(in, "put %s second\nget target %s\n!echo complete\n", source, back); err != nil {
		t.Fatal(err)
	}
	for lines := bufio.NewReader(out); ; {
		line, err := lines.ReadString('\n')
		if err != nil {
			t.Fatal(err)
		}
		if line == "complete\n" {
			break
		}
	}
	server := r.serverProcess()
	sessions := r.children(server)
	if len(sessions) != 1 {
		t.Fatalf("got processes %v of sessions, want one", sessions)
	}
	for _, pid := range []int{server, sessions[0]} {
		if used := r.highWater(pid); used > most {
			t.Errorf("process %d used %d bytes, want at most %d", pid, used, most)
		}
		t.Logf("process %d used %d bytes", pid, r.highWater(pid))
	}
	if err := errors.Join(in.Close(), cmd.Wait()); err != nil {
		t.Error(err)
	}
	for _, path := range []string{back, filepath.Join(r.home, "second")} {
		if got := digest(t, path); got != want {
			t.Errorf("%s differs", path)
		}
	}
}

func TestFiles(t *testing.T) {
	r := newRig(t, nil)
	got := r.sftp("pwd", "mkdir d", "put "+r.write("small", "small\n", 0o640)+" d/a", "chmod 600 d/a", "rename d/a d/b",
		"ln -s b d/link", "ls -l d", "get d/link "+filepath.Join(r.dir, "got"), "df")
	if got.status != 0 || !strings.Contains(got.out, "Remote working directory: "+r.home) ||
		!strings.Contains(got.out, "-rw-------") {
		t.Errorf("got %+v", got)
	}
	if text, err := os.ReadFile(filepath.Join(r.dir, "got")); err != nil || string(text) != "small\n" {
		t.Errorf("got %q, %v, want the small file", text, err)
	}
	if got := r.sftp("get missing"); got.status == 0 || !strings.Contains(got.err, "not found") {
		t.Errorf("missing file: got %+v, want an error", got)
	}
}

func randomFile(t *testing.T, path string, size int64) string {
	t.Helper()
	f, err := os.Create(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if _, err := io.CopyN(f, rand.Reader, size); err != nil {
		t.Fatal(err)
	}
	return digest(t, path)
}

func digest(t *testing.T, path string) string {
	t.Helper()
	f, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	h := sha256.New()
	if _, err := io.Copy(h, f); err != nil {
		t.Fatal(err)
	}
	return string(h.Sum(nil))
}

// The processes of an account with a root directory see nothing else, SFTP neither.
func TestRootDirectory(t *testing.T) {
	testenv.Programs(t, "busybox")
	root := t.TempDir()
	for _, dir := range []string{"bin", "proc", "home/rescue"} {
		if err := os.MkdirAll(filepath.Join(root, dir), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	busybox := strings.TrimSpace(testenv.Run(t, "sh", "-c", "command -v busybox"))
	testenv.Run(t, "cp", busybox, filepath.Join(root, "bin/sh"))
	if err := os.Chmod(root, 0o755); err != nil {
		t.Fatal(err)
	}
	if err := unix.Mount("proc", filepath.Join(root, "proc"), "proc", 0, ""); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := unix.Unmount(filepath.Join(root, "proc"), unix.MNT_DETACH); err != nil {
			t.Error(err)
		}
	})
	r := newRig(t, func(list *account.List, _ *limits) {
		(*list)[0] = account.Rescue((*list)[0].Hash, "/bin/sh", root)
	})
	r.want(r.ssh(`pwd; echo /*; while read a b c; do [ $a = Uid: ] && echo $b; done </proc/self/status; exit 0`),
		result{out: "/home/rescue\n/bin /home /proc\n0\n"})
	got := r.sftp("pwd", "ls /")
	if got.status != 0 || !strings.Contains(got.out, "Remote working directory: /home/rescue") ||
		strings.Contains(got.out, "etc") {
		t.Errorf("got %+v, want the directories of the account only", got)
	}
}
