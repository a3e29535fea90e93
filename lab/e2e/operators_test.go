//go:build linux

package e2e

import (
	"crypto/ed25519"
	"crypto/rand"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/crypto/ssh"

	"ironroot/internal/test/testenv"
	"ironroot/internal/test/testenv/sshtest"
)

const (
	// operatorHash is the hash of operatorPassword, made by mkpasswd(1).
	operatorPassword = "a password of an operator"
	operatorHash     = "$5$He0NUEdqHJxJ9piK$OnfWi0VRObl41r8ysNZPCAr/OkTrpypXZDmzqjtITU6"
)

// newKey returns a key, and the line of its public part in authorized_keys.
func newKey(t *testing.T) (ssh.AuthMethod, string) {
	t.Helper()
	_, private, err := ed25519.GenerateKey(rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	signer, err := ssh.NewSignerFromKey(private)
	if err != nil {
		t.Fatal(err)
	}
	line := strings.TrimSpace(string(ssh.MarshalAuthorizedKey(signer.PublicKey()))) + " operator@example"
	return ssh.PublicKeys(signer), line
}

// operators logs in with the key of sshkey= and the password of rootpwd=, by SSH and on the console, while the agent
// serves. It returns a connection that is still open.
//
// Parity: R5
func (r *rig) operators(t *testing.T, key ssh.AuthMethod) *ssh.Client {
	r.secrets = append(r.secrets, operatorPassword, operatorHash)
	other, _ := newKey(t)
	r.denied(t, "root", other)
	r.denied(t, "root", ssh.Password("wrong"))
	for _, method := range []ssh.AuthMethod{key, ssh.Password(operatorPassword)} {
		client := r.login(t, "root", method)
		if got := sshtest.Run(t, client, "id", nil); !strings.HasPrefix(got, "uid=0(root)") {
			t.Errorf("id: got %q, want root", got)
		}
		_ = client.Close()
	}
	setLink := func(up bool) {
		if _, err := r.machine.QMP(soon(t), "set_link", map[string]any{"name": "nic0", "up": up}); err != nil {
			t.Fatal(err)
		}
	}
	setLink(false) // the prompt needs no network
	r.promptedLogin(t, "root", operatorPassword)
	setLink(true)
	return r.login(t, "root", key)
}

// ended checks that a lockdown has ended a login.
func ended(t *testing.T, client *ssh.Client) {
	t.Helper()
	done := make(chan struct{})
	go func() {
		_ = client.Wait() // how it ends is of no interest
		close(done)
	}()
	select {
	case <-done:
	case <-soon(t).Done():
		t.Error("the login has not ended")
	}
}

// keysFile returns a file with a public key.
func keysFile(t *testing.T, line string) string {
	t.Helper()
	name := filepath.Join(t.TempDir(), "authorized_keys")
	if err := os.WriteFile(name, []byte("# operators\n"+line+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	return name
}

// smallUserland returns a userland of a rescue that consists of a shell.
func smallUserland(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	testenv.Files(t, "install busybox-static", "/bin/busybox")
	if err := os.MkdirAll(filepath.Join(dir, "bin"), 0o755); err != nil {
		t.Fatal(err)
	}
	testenv.Run(t, "cp", "/bin/busybox", filepath.Join(dir, "bin/busybox"))
	for _, name := range []string{"sh", "id", "cat", "ls", "umount", "mount"} {
		if err := os.Symlink("busybox", filepath.Join(dir, "bin", name)); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

// rescueInUserland hands the machine over to a user, whose sessions run in the userland of the image.
func (r *rig) rescueInUserland(t *testing.T, operator ssh.AuthMethod) {
	open := r.login(t, "root", operator)
	r.succeed(t, "rescue.finalize_rescue", map[string]any{"rescue_password": rescueHash, "hashed": true})
	ended(t, open)
	says(t, r.machine, `(?s)starts again without the agent.*lease obtained`)
	says(t, r.machine, `rescue: waiting for logins`)
	r.denied(t, "root", operator)
	client := r.login(t, "rescue", ssh.Password(rescuePassword))
	defer client.Close()
	for command, want := range map[string]string{
		"echo $SHELL; ls /":         "/bin/sh\n",
		"id":                        "uid=0",
		"sudo id":                   "uid=0",
		"cat /proc/cmdline":         "console=ttyS0",
		"cat /etc/resolv.conf":      "nameserver ",
		"ls /dev":                   "vda",
		"echo text >file; cat file": "text\n",
	} {
		if got := sshtest.Run(t, client, command, nil); !strings.Contains(got, want) {
			t.Errorf("%s: got %q, want %q", command, got, want)
		}
	}
}
