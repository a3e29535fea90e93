//go:build linux

package e2e

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
)

const (
	sshPort = 22
	// rescueHash is the hash of rescuePassword, made by mkpasswd(1).
	rescuePassword = "a password of a rescue"
	rescueHash     = "$6$ZXflf0Y2lAQczPoV$ckToMpfMmc/ni7iAuVedXzGAKImGKfjTRN9qrwrVdqf.MgN4.fPBD2lLf/" +
		"ljFRa6AJ7NNr.3uu7c0qQ0rNWTO0"
)

// rescue hands the machine over to a user, who logs in by SSH, is root, transfers files, and finds nothing of the
// agent. He can also log in on the console.
//
// Parity: E10, R7
func (r *rig) rescue(t *testing.T, token string, p *plantedSecrets) {
	status, answer := r.call(t, http.MethodPost, token, `{"name": "rescue.finalize_rescue", "params": {`+
		`"rescue_password": "`+rescueHash+`", "hashed": true}}`)
	if status != http.StatusOK || !strings.Contains(answer, `"SUCCEEDED"`) {
		t.Fatalf("got %d %s, want success", status, answer)
	}
	for _, expression := range []string{ // a search proves nothing if there was nothing to find
		`configuration copied from boot ISO.*/etc/ironic-python-agent\.d/b\.conf`,
		`drive of virtual media removed device=/dev/sr`, `drive of virtual media removed device=/dev/sd`,
		`RAM disk of the firmware overwritten device=/dev/pmem`,
	} {
		says(t, r.machine, expression)
	}
	r.secrets = append(r.secrets, rescuePassword, rescueHash)
	says(t, r.machine, `(?s)starts again without the agent.*lease obtained`)
	says(t, r.machine, `rescue: waiting for logins`)
	r.denied(t, "rescue", ssh.Password("wrong"))
	r.denied(t, "root", ssh.Password(rescuePassword))
	client := r.login(t, "rescue", ssh.Password(rescuePassword))
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
		{"cat /proc/net/tcp /proc/net/tcp6", listens(sshPort)},
	})
	if sockets := answers[len(answers)-1]; regexp.MustCompile(listens(agentPort)).MatchString(sockets) {
		t.Errorf("got sockets\n%s\nwant none of the agent", sockets)
	}
	r.transferFiles(t, client)
	r.probeRescue(t, client, append([]string{token}, p.secrets()...), p.tenantsStick)
	r.promptedLogin(t, "rescue", rescuePassword)
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
func (r *rig) transferFiles(t *testing.T, client *ssh.Client) {
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
func (r *rig) probeRescue(t *testing.T, client *ssh.Client, secrets []string, onMedium string) {
	t.Helper()
	probe := filepath.Join(t.TempDir(), "probe")
	testenv.Run(t, "env", "CGO_ENABLED=0", "go", "build", "-trimpath", "-ldflags=-s -w", "-o", probe, "./rescueprobe")
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
	texts := append([]string{"ironroot starts", rescueHash, "Linux version", onMedium}, secrets...)
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

// promptedLogin logs in at the prompt on the console, and out.
func (r *rig) promptedLogin(t *testing.T, user, password string) {
	t.Helper()
	console := r.machine.Console()
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
		if _, err := console.FollowFrom(soon(t), mark, regexp.MustCompile(step.want)); err != nil {
			t.Fatalf("after %q: nothing on the console matches %q: %v", step.send, step.want, err)
		}
	}
}

// dialSSH connects to the SSH server of the machine. It accepts only a host key whose fingerprint is on the console.
func (r *rig) dialSSH(t *testing.T, user string, method ssh.AuthMethod) (*ssh.Client, error) {
	t.Helper()
	conn, err := r.dialPort(soon(t), sshForward)
	if err != nil {
		t.Fatal(err)
	}
	return sshtest.Login(conn, user, method, r.machine.Console().String())
}

// login logs in by SSH.
func (r *rig) login(t *testing.T, user string, method ssh.AuthMethod) *ssh.Client {
	t.Helper()
	client, err := r.dialSSH(t, user, method)
	if err != nil {
		t.Fatalf("log in as %s: %v", user, err)
	}
	return client
}

// denied checks that a login is refused.
func (r *rig) denied(t *testing.T, user string, method ssh.AuthMethod) {
	t.Helper()
	client, err := r.dialSSH(t, user, method)
	if err == nil {
		_ = client.Close()
		t.Errorf("log in as %s: got success, want a refusal", user)
	} else if !strings.Contains(err.Error(), "unable to authenticate") {
		t.Errorf("log in as %s: got %v, want a refusal", user, err)
	}
}
