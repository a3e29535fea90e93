package account

import (
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestEnvironmentAndLoginShell(t *testing.T) {
	a := Account{Name: "u", Home: "/home/u", Shell: "/bin/bash"}
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
