//go:build linux

package disks

import (
	"strings"
	"testing"

	"golang.org/x/crypto/ssh"

	"ironroot/internal/test/testenv/sshtest"
	"ironroot/lab/e2e/rig"
)

const (
	// operatorHash is the hash of operatorPassword, made by mkpasswd(1).
	operatorPassword = "a password of an operator"
	operatorHash     = "$5$He0NUEdqHJxJ9piK$OnfWi0VRObl41r8ysNZPCAr/OkTrpypXZDmzqjtITU6"
)

// operators logs in with the key of sshkey= and the password of rootpwd=, by SSH and on the console, while the agent
// serves. It returns a connection that is still open.
//
// Parity: R5
func operators(t *testing.T, r *rig.Rig, key ssh.AuthMethod) *ssh.Client {
	r.Secrets = append(r.Secrets, operatorPassword, operatorHash)
	other, _ := rig.NewKey(t)
	r.Denied(t, "root", other)
	r.Denied(t, "root", ssh.Password("wrong"))
	for _, method := range []ssh.AuthMethod{key, ssh.Password(operatorPassword)} {
		client := r.Login(t, "root", method)
		if got := sshtest.Run(t, client, "id", nil); !strings.HasPrefix(got, "uid=0(root)") {
			t.Errorf("id: got %q, want root", got)
		}
		_ = client.Close()
	}
	setLink := func(up bool) {
		if _, err := r.Machine.QMP(rig.Soon(t), "set_link", map[string]any{"name": "nic0", "up": up}); err != nil {
			t.Fatal(err)
		}
	}
	setLink(false) // the prompt needs no network
	r.PromptedLogin(t, "root", operatorPassword)
	setLink(true)
	return r.Login(t, "root", key)
}
