//go:build linux

package rig

import (
	"crypto/ed25519"
	"crypto/rand"
	"regexp"
	"strings"
	"testing"

	"golang.org/x/crypto/ssh"

	"ironroot/internal/test/testenv/sshtest"
)

// NewKey returns a key, and the line of its public part in authorized_keys.
func NewKey(t *testing.T) (ssh.AuthMethod, string) {
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

// LoginEnded checks that a lockdown has ended a login.
func LoginEnded(t *testing.T, client *ssh.Client) {
	t.Helper()
	done := make(chan struct{})
	go func() {
		_ = client.Wait() // how it ends is of no interest
		close(done)
	}()
	select {
	case <-done:
	case <-Soon(t).Done():
		t.Error("the login has not ended")
	}
}

const (
	// SSHPort is the port of the ramdisk's SSH server.
	SSHPort = 22
	// RescuePassword is the password of a rescue.
	RescuePassword = "a password of a rescue"
	// RescueHash is the hash of RescuePassword, made by mkpasswd(1).
	RescueHash = "$6$ZXflf0Y2lAQczPoV$ckToMpfMmc/ni7iAuVedXzGAKImGKfjTRN9qrwrVdqf.MgN4.fPBD2lLf/" +
		"ljFRa6AJ7NNr.3uu7c0qQ0rNWTO0"
)

// PromptedLogin logs in at the prompt on the console, and out.
func (r *Rig) PromptedLogin(t *testing.T, user, password string) {
	t.Helper()
	console := r.Machine.Console()
	for _, step := range []struct{ send, want string }{
		{"\r", `ironroot login: `},
		{user + "\r", `Password: `},
		{"wrong\r", `login incorrect(?s).*ironroot login: `},
		{user + "\r", `Password: `},
		{password + "\r", `[$#>] `},
		{"id -u; echo 'LOGGED''IN'\r", `LOGGEDIN(?s)\s.*[$#>] `}, // the shell discards what was typed before
		{"exit\r", `ironroot login: `},
	} {
		mark := console.Mark()
		if err := console.Send(step.send); err != nil {
			t.Fatal(err)
		}
		if _, err := console.FollowFrom(Soon(t), mark, regexp.MustCompile(step.want)); err != nil {
			t.Fatalf("after %q: nothing on the console matches %q: %v", step.send, step.want, err)
		}
	}
}

// dialSSH connects to the SSH server of the machine. It accepts only a host key whose fingerprint is on the console.
func (r *Rig) dialSSH(t *testing.T, user string, method ssh.AuthMethod) (*ssh.Client, error) {
	t.Helper()
	conn, err := r.dialPort(Soon(t), sshForward)
	if err != nil {
		t.Fatal(err)
	}
	return sshtest.Login(conn, user, method, r.Machine.Console().String())
}

// Login logs in by SSH.
func (r *Rig) Login(t *testing.T, user string, method ssh.AuthMethod) *ssh.Client {
	t.Helper()
	client, err := r.dialSSH(t, user, method)
	if err != nil {
		t.Fatalf("log in as %s: %v", user, err)
	}
	return client
}

// Denied checks that a login is refused.
func (r *Rig) Denied(t *testing.T, user string, method ssh.AuthMethod) {
	t.Helper()
	client, err := r.dialSSH(t, user, method)
	if err == nil {
		_ = client.Close()
		t.Errorf("log in as %s: got success, want a refusal", user)
	} else if !strings.Contains(err.Error(), "unable to authenticate") {
		t.Errorf("log in as %s: got %v, want a refusal", user, err)
	}
}
