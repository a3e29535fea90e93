package account

import (
	"bytes"
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"ironroot/internal/password"
	"ironroot/internal/test/testenv"
)

// hash is one of "correct horse", made by mkpasswd.
const hash = "$5$rounds=1000$E5juchjWmYK7iC6A$8piWManrcoD696uKfVNQmb5WS8vlyu41djRuZEY6Dc/"

func parseHash(t *testing.T) password.Hash {
	t.Helper()
	h, err := password.Parse(hash)
	if err != nil {
		t.Fatal(err)
	}
	return h
}

// publicKey makes a key with ssh-keygen and returns its line and its fingerprint.
func publicKey(t *testing.T, args ...string) (line, fingerprint string) {
	t.Helper()
	testenv.Programs(t, "ssh-keygen")
	path := filepath.Join(t.TempDir(), "key")
	testenv.Run(t, "ssh-keygen", append(args, "-q", "-N", "", "-C", "user@host", "-f", path)...)
	text, err := os.ReadFile(path + ".pub")
	if err != nil {
		t.Fatal(err)
	}
	return strings.TrimSpace(string(text)), strings.Fields(testenv.Run(t, "ssh-keygen", "-lf", path+".pub"))[1]
}

// Keys that OpenSSH made, with comments, empty lines and harmless options.
func TestParseKeys(t *testing.T) {
	var lines, want []string
	for _, args := range []string{"-t ed25519", "-t ecdsa -b 256", "-t ecdsa -b 521", "-t rsa -b 2048"} {
		line, _ := publicKey(t, strings.Fields(args)...)
		lines = append(lines, line)
		want = append(want, strings.Fields(line)[1])
	}
	text := "# comment\n\n  " + lines[0] + "\r\nno-port-forwarding,no-X11-forwarding,no-agent-forwarding " +
		lines[1] + "\n" +
		lines[2] + " with a longer comment\n\t\n" + strings.Join(strings.Fields(lines[3])[:2], " ")
	keys, err := ParseKeys([]byte(text))
	if err != nil {
		t.Fatal(err)
	}
	encoded, err := json.Marshal(keys)
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	if err := json.Unmarshal(encoded, &got); err != nil { // the wire format in Base64, as in the file
		t.Fatal(err)
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("keys differ (-want +got):\n%s", diff)
	}
	if key, err := ParseKey(" " + lines[0] + "\n"); err != nil || !bytes.Equal(key, keys[0]) {
		t.Errorf("got %x, %v, want the first key", key, err)
	}
}

// A text that is no key that the server accepts is an error with the number of its line, and without its text.
func TestParseKeysRefuses(t *testing.T) {
	good, _ := publicKey(t, "-t", "ed25519")
	short, _ := publicKey(t, "-t", "rsa", "-b", "1024")
	blob := strings.Fields(good)[1]
	for text, want := range map[string]string{
		"":                                    "no key found",
		"# only a comment\n":                  "no key found",
		good + "\nssh-ed25519 AAAAnonsense\n": "line 2: no valid public key",
		"\n" + short:                          "line 2: RSA key of 1024 bits, want 2048 to 16384",
		"ssh-ed25519 " + blob[:40]:            "line 1: no valid public key",
		"ssh-rsa " + blob:                     "line 1: no valid public key",
		"command=\"/bin/nonsense\" " + good:   "line 1: options that restrict the key are not supported",
		"restrict " + good:                    "line 1: options that restrict the key are not supported",
		"from=\"10.0.0.1\",pty " + good:       "line 1: options that restrict the key are not supported",
		"cert-authority " + good:              "line 1: options that restrict the key are not supported",
		"-----BEGIN OPENSSH PRIVATE KEY-----\nnonsense\n": "line 1: a private key, want a public one",
		"correct horse battery staple nonsense":           "line 1: no valid public key",
		good + "\n" + strings.Repeat("x", 20<<10):         "line 2: 20480 bytes, want at most 16384",
		strings.Repeat("x", 1<<20):                        "authorized keys: 1048576 bytes, want at most 262144",
		strings.Repeat("#\n", 1<<19):                      "authorized keys: 1048576 bytes, want at most 262144",
		"ssh-dss AAAAB3NzaC1kc3MAAACBAJ9o nonsense":       "line 1: no valid public key",
		"ssh-ed25519-cert-v01@openssh.com " + blob:        "line 1: no valid public key",
	} {
		keys, err := ParseKeys([]byte(text))
		if err == nil || !strings.Contains(err.Error(), want) || keys != nil {
			t.Errorf("%.60q: got %d keys, %v, want an error with %q", text, len(keys), err, want)
			continue
		}
		if strings.Contains(err.Error(), "nonsense") || strings.Contains(err.Error(), blob[:20]) {
			t.Errorf("the error contains a part of the line: %v", err)
		}
	}
	if _, err := ParseKey(good + "\n" + good); err == nil {
		t.Error("two keys are accepted as one")
	}
}

// A certificate of OpenSSH is no key.
func TestCertificateIsRefused(t *testing.T) {
	dir := t.TempDir()
	testenv.Programs(t, "ssh-keygen")
	for _, name := range []string{"ca", "user"} {
		testenv.Run(t, "ssh-keygen", "-t", "ed25519", "-q", "-N", "", "-f", filepath.Join(dir, name))
	}
	testenv.Run(t, "ssh-keygen", "-q", "-s", filepath.Join(dir, "ca"), "-I", "id", "-n", "root",
		filepath.Join(dir, "user.pub"))
	text, err := os.ReadFile(filepath.Join(dir, "user-cert.pub"))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := ParseKeys(text); err == nil || !strings.Contains(err.Error(), "no certificate") {
		t.Errorf("got %v, want an error about the type", err)
	}
}

// sameHash compares hashes.
var sameHash = cmp.Comparer(func(a, b password.Hash) bool { return a == b })

func TestList(t *testing.T) {
	h := parseHash(t)
	key, other := Key("\x00\x00\x00\x0bssh-ed25519"), Key("other")
	list := List{Root(password.Hash{}, []Key{key}, "/bbin/gosh"), Rescue(h, "/bin/bash", "/rescue")}
	if err := list.Check(); err != nil {
		t.Fatal(err)
	}
	for _, tt := range []struct {
		user, password string
		want           bool
	}{
		{"rescue", "correct horse", true},
		{"rescue", "x", false},
		{"root", "correct horse", false},
		{"nobody", "correct horse", false},
		{"", "", false},
		{"root", "", false},
	} {
		if got := list.MatchesPassword(tt.user, []byte(tt.password)); got != tt.want {
			t.Errorf("%q, %q: got %v, want %v", tt.user, tt.password, got, tt.want)
		}
	}
	if !list.HasKey("root", key) || list.HasKey("root", other) || list.HasKey("rescue", key) || list.HasKey("x", key) ||
		list.HasKey("root", nil) {
		t.Error("a key is accepted that is not the user's, or the other way round")
	}
	if !list.HasPasswords() || !list.HasKeys() || (List{}).HasKeys() || list[:1].HasPasswords() || list[1:].HasKeys() {
		t.Error("HasPasswords or HasKeys is wrong")
	}
	if a, ok := list.Find("rescue"); !ok || a.Home != "/home/rescue" {
		t.Errorf("got %+v, %v, want the user of the rescue", a, ok)
	}
	encoded, err := json.Marshal(list)
	if err != nil {
		t.Fatal(err)
	}
	back, err := decode(string(encoded))
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(list, back, sameHash); diff != "" {
		t.Errorf("list differs (-want +got):\n%s", diff)
	}
}

func TestCheckRefuses(t *testing.T) {
	many := "[" + strings.Repeat(`{"name":"a","home":"/","shell":"/"},`, 20) + `{"name":"a","home":"/","shell":"/"}]`
	for text, want := range map[string]string{
		`[{"name":"root","home":"/","shell":"/","hash":"$1$secret$secret"}]`:        "format MD5 not supported",
		`[{"name":"Root:secret","home":"/","shell":"/"}]`:                           "invalid name",
		`[{"name":"","home":"/","shell":"/"}]`:                                      "invalid name",
		`[{"name":"a","home":"x","shell":"/"}]`:                                     "want an absolute one",
		`[{"name":"a","home":"/","shell":""}]`:                                      "want an absolute one",
		`[{"name":"a","home":"/","shell":"/","root":"x"}]`:                          `root directory "x"`,
		`[{"name":"a","home":"/","shell":"/"},{"name":"a","home":"/","shell":"/"}]`: "account a: listed twice",
		many: "21 accounts, want at most 16",
	} {
		list, err := decode(text)
		if err == nil || !strings.Contains(err.Error(), want) || strings.Contains(err.Error(), "secret") {
			t.Errorf("%.60q: got %d accounts, %v, want an error with %q", text, len(list), err, want)
		}
	}
}

// decode returns a list as JSON, in which processes receive it, if it is valid.
func decode(text string) (List, error) {
	var list List
	err := json.Unmarshal([]byte(text), &list)
	return list, errors.Join(err, list.Check())
}

// A link in a root directory does not lead out of it.
func TestMakeHome(t *testing.T) {
	outside, root := t.TempDir(), t.TempDir()
	a := Rescue(parseHash(t), "/bin/sh", root)
	for range 2 { // the second time changes nothing
		if err := a.MakeHome(); err != nil {
			t.Fatal(err)
		}
		if info, err := os.Stat(filepath.Join(root, "home/rescue")); err != nil || info.Mode() != os.ModeDir|0o700 {
			t.Errorf("got home directory %v, %v", info, err)
		}
	}
	a.Home = "/link/home"
	if err := os.Symlink(outside, filepath.Join(root, "link")); err != nil {
		t.Fatal(err)
	}
	if err := a.MakeHome(); err == nil {
		t.Error("a link out of the root directory is followed")
	}
	if entries, err := os.ReadDir(outside); err != nil || len(entries) > 0 {
		t.Errorf("got %v, %v outside, want nothing", entries, err)
	}
}

func FuzzParseKeys(f *testing.F) {
	const key = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIJ0YzxAGdMLH0Q6sNpBbGxW0dFVhJFSLaPs9EM0n6rQm comment"
	f.Add([]byte(key))
	f.Add([]byte("# x\n\ncommand=\"a \\\" b\",pty " + key + "\n"))
	f.Add([]byte("ssh-rsa AAAAB3NzaC1yc2EAAAADAQABAAAA"))
	f.Fuzz(func(t *testing.T, text []byte) {
		keys, err := ParseKeys(text)
		if (err == nil) != (len(keys) > 0) {
			t.Errorf("got %d keys, %v", len(keys), err)
		}
	})
}
