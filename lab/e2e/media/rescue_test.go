//go:build linux

package media

import (
	"bytes"
	"encoding/hex"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/pkg/sftp"
	"golang.org/x/crypto/ssh"

	"ironroot/internal/test/testenv"
	"ironroot/internal/test/testenv/sshtest"
	"ironroot/lab/e2e/rig"
)

// rescue hands the machine over to a user, who logs in by SSH, is root, transfers files, and finds nothing of the
// agent. He can also log in on the console.
//
// Parity: E10, R7
func rescue(t *testing.T, r *rig.Rig, token string, p *plantedSecrets) {
	status, answer := r.Call(t, http.MethodPost, token, `{"name": "rescue.finalize_rescue", "params": {`+
		`"rescue_password": "`+rig.RescueHash+`", "hashed": true}}`)
	if status != http.StatusOK || !strings.Contains(answer, `"SUCCEEDED"`) {
		t.Fatalf("got %d %s, want success", status, answer)
	}
	for _, expression := range []string{ // a search proves nothing if there was nothing to find
		`configuration copied from boot ISO.*/etc/ironic-python-agent\.d/b\.conf`,
		`drive of virtual media removed device=/dev/sr`, `drive of virtual media removed device=/dev/sd`,
		`RAM disk of the firmware overwritten device=/dev/pmem`,
	} {
		rig.WaitConsole(t, r.Machine, expression)
	}
	r.Secrets = append(r.Secrets, rig.RescuePassword, rig.RescueHash)
	rig.WaitConsole(t, r.Machine, `(?s)starts again without the agent.*lease obtained`)
	rig.WaitConsole(t, r.Machine, `rescue: waiting for logins`)
	r.Denied(t, "rescue", ssh.Password("wrong"))
	r.Denied(t, "root", ssh.Password(rig.RescuePassword))
	client := r.Login(t, "rescue", ssh.Password(rig.RescuePassword))
	defer client.Close()
	answers := outputs(t, client, []question{
		{"id", `^uid=0\(root\) gid=0`},
		{"cat /proc/self/status", `(?s)Uid:\t0\t0\t0\t0\nGid:\t0\t0\t0\t0\n.*Groups:\t ?\n`},
		{"pwd", `^/home/rescue\s*$`},
		{"sudo id", `^uid=0\(root\)`},
		{"cat /proc/1/cmdline", `^/init\x00$`},
		{"cat /proc/cmdline", `console=ttyS0.*ipa-agent-token=\*\*\*`},
		{"sudo ls /etc/ipa-rescue-config", `^ipa-rescue-password\s*$`},
		{"sudo cat /sys/kernel/security/lockdown", `\[confidentiality\]`},
		{"cat /proc/filesystems", `(?s)\text4\n.*\txfs\n.*\tbtrfs\n.*\tvfat\n`},
		{"cat /proc/net/tcp /proc/net/tcp6", listens(rig.SSHPort)},
	})
	if sockets := answers[len(answers)-1]; regexp.MustCompile(listens(rig.AgentPort)).MatchString(sockets) {
		t.Errorf("got sockets\n%s\nwant none of the agent", sockets)
	}
	transferFiles(t, r, client)
	probeRescue(t, r, client, append([]string{token}, p.secrets()...), p.tenantsStick)
	r.PromptedLogin(t, "rescue", rig.RescuePassword)
}

// listens returns an expression for a socket that listens on a port, as /proc/net/tcp shows it.
func listens(port int) string { return fmt.Sprintf(`:%04X [0-9A-F]+:0000 0A `, port) }

// question is a command, and an expression that its output must match.
type question struct{ command, want string }

// outputs runs commands in one session, and returns their outputs.
func outputs(t *testing.T, client *ssh.Client, questions []question) []string {
	t.Helper()
	const mark = "= end of output =\n"
	var script strings.Builder
	for _, q := range questions {
		fmt.Fprintf(&script, "%s\necho '%s'\n", q.command, strings.TrimSpace(mark))
	}
	got := strings.Split(sshtest.Run(t, client, script.String(), nil), mark)
	if len(got) != len(questions)+1 {
		t.Fatalf("got outputs %q of %d commands", got, len(questions))
	}
	for i, q := range questions {
		if !regexp.MustCompile(q.want).MatchString(got[i]) {
			t.Errorf("%s: got %q, want %s", q.command, got[i], q.want)
		}
	}
	return got[:len(questions)]
}

// transferFiles uses SFTP.
func transferFiles(t *testing.T, r *rig.Rig, client *ssh.Client) {
	t.Helper()
	files, err := sftp.NewClient(client)
	if err != nil {
		t.Fatal(err)
	}
	defer files.Close()
	data := bytes.Repeat([]byte("transferred "), 1<<16)
	put(t, files, "/home/rescue/file", data)
	f, err := files.Open("/home/rescue/file")
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	got, err := io.ReadAll(f)
	if err != nil || !bytes.Equal(got, data) {
		t.Errorf("read %d bytes, %v, want the %d written", len(got), err, len(data))
	}
}

// put writes a file.
func put(t *testing.T, files *sftp.Client, name string, data []byte) {
	t.Helper()
	f, err := files.Create(name)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := f.ReadFrom(bytes.NewReader(data)); err != nil {
		t.Fatal(err)
	}
	if err := f.Close(); err != nil {
		t.Fatal(err)
	}
}

// probeRescue searches the machine for secrets with the rights of root. It also searches for texts that must be there,
// so that a search that finds nothing shows something: one of them is on a medium of the tenant.
func probeRescue(t *testing.T, r *rig.Rig, client *ssh.Client, secrets []string, onMedium string) {
	t.Helper()
	probe := filepath.Join(t.TempDir(), "probe")
	testenv.Run(t, "env", "CGO_ENABLED=0", "go", "build", "-trimpath", "-ldflags=-s -w", "-o", probe,
		"ironroot/lab/e2e/guest/rescueprobe")
	program, err := os.ReadFile(probe)
	if err != nil {
		t.Fatal(err)
	}
	files, err := sftp.NewClient(client)
	if err != nil {
		t.Fatal(err)
	}
	defer files.Close()
	put(t, files, "probe", program)
	if err := files.Chmod("probe", 0o700); err != nil {
		t.Fatal(err)
	}
	var input strings.Builder
	texts := append([]string{"ironroot starts", rig.RescueHash, "Linux version", onMedium}, secrets...)
	for _, text := range texts {
		fmt.Fprintln(&input, hex.EncodeToString([]byte(text)))
	}
	got := sshtest.Run(t, client, "sudo ./probe", strings.NewReader(input.String()))
	for _, want := range []string{
		fmt.Sprintf("searched %d", len(texts)), "text 0 in /proc/1/mem",
		"text 1 in /etc/ipa-rescue-config/ipa-rescue-password", `text 2 in the kernel's log \(syslog\)`,
		`text 2 in the kernel's log \(/dev/kmsg\)`, `text 3 in /dev/sd[a-z]`,
	} {
		if !regexp.MustCompile(`(?m)^` + want + `$`).MatchString(got) {
			t.Errorf("the search lacks %q", want)
		}
	}
	allowed := regexp.MustCompile(`^(text [0-3] in .*|searched \d+)\s*$`)
	for line := range strings.Lines(got) {
		if !allowed.MatchString(line) {
			t.Errorf("search for secrets: %s", line)
		}
	}
	if t.Failed() {
		t.Logf("the search found\n%s", got)
	}
}
