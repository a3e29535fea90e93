//go:build linux

package sshd

import (
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/crypto/ssh"

	"ironroot/internal/test/testenv"
	"ironroot/uinit/account"
)

// A user logs in with a password, and runs programs as root. Nobody else does.
func TestPasswordLogin(t *testing.T) {
	r := newRig(t, nil)
	r.want(r.ssh("id -u; id -g; pwd; echo $HOME $USER $LOGNAME $SHELL $TERM"),
		result{out: "0\n0\n" + r.home + "\n" + r.home + " rescue rescue /bin/bash dumb\n"})
	for user, given := range map[string]string{
		"rescue": "wrong", "root": secret, "nobody": secret, "": secret, "root ": rootSecret, "rescue ": secret,
	} {
		got := r.run(r.command(given, "ssh", "-l", user, "127.0.0.1", "id"))
		if got.status != 255 || got.out != "" ||
			(user != "" && !strings.Contains(got.err, "Permission denied (password)")) {
			t.Errorf("user %q, password %q: got %+v, want it denied", user, given, got)
		}
	}
	r.log.find(t, `msg="login failed" user=(unknown) address=127.0.0.1 method=password count=`)
	r.log.find(t, `msg="login failed" user=rescue address=127.0.0.1 method=password count=`)
	if text := r.log.String(); strings.Contains(text, "nobody") {
		t.Errorf("the log contains the name of an unknown user, which can be a password:\n%s", text)
	}
	r.log.find(t, `msg="user logged in" user=rescue address=127.0.0.1 method=password`)
	r.log.find(t, `msg="session ended" user=rescue address=127.0.0.1 status="exit status 0"`)
}

// The fingerprints belong to the keys that a client receives.
func TestHostKeys(t *testing.T) {
	r := newRig(t, nil)
	var got []string
	for line := range strings.Lines(testenv.Run(t, "ssh-keygen", "-lf", filepath.Join(r.dir, "known"))) {
		fields := strings.Fields(line) // bits, fingerprint, host, (type)
		kind := map[string]string{"(ED25519)": "ssh-ed25519", "(ECDSA)": "ecdsa-sha2-nistp256"}[fields[3]]
		got = append(got, kind+" "+fields[1])
	}
	slices.Sort(got)
	if want := slices.Sorted(slices.Values(r.server.Fingerprints())); !slices.Equal(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
}

// Users log in with the keys of their account only. Signatures with SHA-1 are refused.
func TestKeyLogin(t *testing.T) {
	testenv.Programs(t, "ssh-keygen")
	dir := t.TempDir()
	var lines string
	for name, args := range map[string]string{
		"ed25519": "-t ed25519", "ecdsa": "-t ecdsa -b 384", "rsa": "-t rsa -b 2048", "other": "-t ed25519",
	} {
		path := filepath.Join(dir, name)
		testenv.Run(t, "ssh-keygen", append(strings.Fields(args), "-q", "-N", "", "-f", path)...)
		public, err := os.ReadFile(path + ".pub")
		if err != nil {
			t.Fatal(err)
		}
		if name != "other" {
			lines += string(public)
		}
	}
	keys, err := account.ParseKeys([]byte(lines))
	if err != nil {
		t.Fatal(err)
	}
	r := newRig(t, func(list *account.List, _ *limits) { (*list)[1].Keys = keys })
	login := func(user, key string, more ...string) result {
		args := append([]string{"-i", filepath.Join(dir, key), "-o", "PreferredAuthentications=publickey"}, more...)
		return r.run(r.command("", "ssh", append(args, user+"@127.0.0.1", "id -u")...))
	}
	for _, name := range []string{"ed25519", "ecdsa", "rsa"} {
		r.want(login("root", name), result{out: "0\n"})
	}
	for name, got := range map[string]result{
		"another key":  login("root", "other"),
		"another user": login("rescue", "ed25519"),
		"SHA-1":        login("root", "rsa", "-o", "PubkeyAcceptedAlgorithms=ssh-rsa"),
	} {
		if got.status != 255 || got.out != "" || !strings.Contains(got.err, "Permission denied (password,publickey)") {
			t.Errorf("%s: got %+v, want it denied", name, got)
		}
	}
}

// newKey makes a key pair, and returns the path of the private key and the public key.
func newKey(t *testing.T) (string, account.Key) {
	t.Helper()
	testenv.Programs(t, "ssh-keygen")
	path := filepath.Join(t.TempDir(), "key")
	testenv.Run(t, "ssh-keygen", "-t", "ed25519", "-q", "-N", "", "-f", path)
	public, err := os.ReadFile(path + ".pub")
	if err != nil {
		t.Fatal(err)
	}
	key, err := account.ParseKey(string(public))
	if err != nil {
		t.Fatal(err)
	}
	return path, key
}

// A login with a listed key does not wait for attempts with passwords, not even if these are refused.
func TestKeyLoginBesidesGuesses(t *testing.T) {
	path, key := newKey(t)
	r := newRig(t, func(list *account.List, l *limits) {
		(*list)[1].Keys = []account.Key{key}
		l.Attempt = rate{time.Hour, 1}
	})
	if _, err := r.dialFrom("127.0.0.1", "root", ssh.Password("wrong")); err == nil {
		t.Fatal("a wrong password was accepted")
	}
	if _, err := r.dialFrom("127.0.0.1", "root", ssh.Password(rootSecret)); err == nil {
		t.Fatal("the limit of attempts does not hold: the right password was accepted after a wrong one")
	}
	r.want(r.run(r.command("", "ssh", "-i", path, "-o", "PreferredAuthentications=publickey",
		"root@127.0.0.1", "id -u")), result{out: "0\n"})
}

// A server whose users have keys only does not ask for passwords, and the other way round.
func TestMethods(t *testing.T) {
	_, key := newKey(t)
	r := newRig(t, func(list *account.List, _ *limits) {
		root := account.Root((*list)[1].Hash, []account.Key{key}, "/bin/sh")
		root.Hash = account.Account{}.Hash
		*list = account.List{root, (*list)[0]}
		(*list)[1].Hash = root.Hash
	})
	got := r.run(r.command(rootSecret, "ssh", "root@127.0.0.1", "id"))
	if got.status != 255 || !strings.Contains(got.err, "Permission denied (publickey)") {
		t.Errorf("got %+v, want keys as the only method", got)
	}
	nobody := account.List{account.Rescue(account.Account{}.Hash, "/bin/sh", "")}
	if _, err := Start(t.Context(), Options{Accounts: nobody}); err == nil {
		t.Error("a server starts that nobody can log in to")
	}
}

// paramikoScript logs in with the password of another user, whom the first attempt on the same connection named. Its
// arguments are the port and the passwords of both users.
const paramikoScript = `
import paramiko, sys, threading
from paramiko.common import cMSG_USERAUTH_REQUEST
t = paramiko.Transport(("127.0.0.1", int(sys.argv[1])))
t.start_client(timeout=120)
try:
    t.auth_password("rescue", "wrong")
except paramiko.AuthenticationException:
    print("rescue denied")
def attempt(user, password):
    t.auth_handler.auth_event = threading.Event()
    m = paramiko.Message()
    m.add_byte(cMSG_USERAUTH_REQUEST)
    for text in (user, "ssh-connection", "password"):
        m.add_string(text)
    m.add_boolean(False)
    m.add_string(password)
    t._send_message(m)
    t.auth_handler.auth_event.wait(120)
    print(user, "accepted" if t.is_authenticated() else "denied")
attempt("root", sys.argv[2])
attempt("rescue", sys.argv[3])
attempt("root", sys.argv[3])
c = t.open_session()
c.exec_command("id -u")
print(c.makefile().read().decode().strip(), c.recv_exit_status())
t.close()
`

// Each attempt is checked for the user that it names, although the first one named another.
func TestUserChanges(t *testing.T) {
	const python = "/usr/bin/python3" // Debian's, which has the library
	testenv.Files(t, "apt-get install python3-paramiko", python, "/usr/lib/python3/dist-packages/paramiko")
	r := newRig(t, nil)
	cmd := exec.CommandContext(t.Context(), python, "-c", paramikoScript, r.port, secret, rootSecret)
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	if want := "rescue denied\nroot denied\nrescue denied\nroot accepted\n0 0\n"; string(out) != want {
		t.Errorf("got %q, want %q", out, want)
	}
}

// The server's process is started again with the same host keys. Sessions end with it.
func TestCrash(t *testing.T) {
	r := newRig(t, nil)
	cmd := r.command(secret, "ssh", "rescue@127.0.0.1", "echo ready; exec sleep 1000")
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	if _, err := out.Read(make([]byte, 10)); err != nil {
		t.Fatal(err)
	}
	process, err := os.FindProcess(r.serverProcess())
	if err != nil {
		t.Fatal(err)
	}
	if err := process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = cmd.Wait()
	if got := cmd.ProcessState.ExitCode(); got != 255 {
		t.Errorf("got exit status %d of the client, want 255", got)
	}
	r.want(r.ssh("echo again"), result{out: "again\n"}) // with the known host keys
	r.log.find(t, `msg="worker ended, restarting" worker=sshd`)
}
