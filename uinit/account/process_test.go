package account

import (
	"syscall"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestCredentialEnvironmentAndLoginShell(t *testing.T) {
	a := Account{Name: "u", UID: 1000, GID: 1001, Groups: []int{27, 5}, Home: "/home/u", Shell: "/bin/bash"}
	want := &syscall.Credential{Uid: 1000, Gid: 1001, Groups: []uint32{27, 5}}
	if diff := cmp.Diff(want, a.Credential()); diff != "" {
		t.Errorf("credential: -want +got\n%s", diff)
	}
	environment := []string{"HOME=/home/u", "USER=u", "LOGNAME=u", "SHELL=/bin/bash", "PATH=" + SearchPath}
	if diff := cmp.Diff(environment, a.Environment()); diff != "" {
		t.Errorf("environment: -want +got\n%s", diff)
	}
	for shell, want := range map[string]string{"/bin/bash": "-bash", "/bbin/gosh": "gosh"} {
		a.Shell = shell
		if got := a.LoginShell(); got != want {
			t.Errorf("login shell %s: got %q, want %q", shell, got, want)
		}
	}
}
