package signature

import (
	"bytes"
	"encoding/base64"
	"errors"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"aead.dev/minisign"

	"ironroot/internal/test/testenv"
)

// run runs Debian's minisign in a directory. input is the text that it reads instead of a terminal's.
func run(t *testing.T, dir, input string, args ...string) {
	t.Helper()
	cmd := exec.Command("minisign", args...)
	cmd.Dir, cmd.Stdin = dir, strings.NewReader(input)
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("minisign %s: %v\n%s", strings.Join(args, " "), err, out)
	}
}

// noPassword fails the test if a password is requested.
func noPassword(t *testing.T) func() (string, error) {
	return func() (string, error) {
		t.Error("a password was requested")
		return "", errors.New("none")
	}
}

// keys makes a key pair of minisign without a password, and returns the signer and the path of the public key.
func keys(t *testing.T, dir string) (Signer, string) {
	t.Helper()
	testenv.Programs(t, "minisign")
	run(t, dir, "", "-G", "-W", "-f", "-p", "key.pub", "-s", "key")
	signer, err := LoadSigner(filepath.Join(dir, "key"), noPassword(t))
	if err != nil {
		t.Fatal(err)
	}
	return signer, filepath.Join(dir, "key.pub")
}

func write(t *testing.T, path, text string) {
	t.Helper()
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}

func publicKey(t *testing.T, keyOrPath string) PublicKey {
	t.Helper()
	key, err := LoadPublicKey(keyOrPath)
	if err != nil {
		t.Fatal(err)
	}
	return key
}

// Debian's minisign verifies our signatures, and we verify minisign's.
func TestMinisign(t *testing.T) {
	dir := t.TempDir()
	signer, public := keys(t, dir)
	for _, content := range []string{"", "text\n", strings.Repeat("\x00\xff", 1<<20)} {
		path := filepath.Join(dir, "file")
		write(t, path, content)
		if err := signer.Sign(path); err != nil {
			t.Fatal(err)
		}
		run(t, dir, "", "-V", "-p", "key.pub", "-m", "file")
		var got bytes.Buffer
		if err := publicKey(t, public).VerifyFile(path, &got); err != nil {
			t.Error(err)
		}
		if got.String() != content {
			t.Errorf("got %d other bytes, want %d", got.Len(), len(content))
		}
		run(t, dir, "", "-S", "-s", "key", "-m", "file")
		if err := publicKey(t, public).VerifyFile(path, io.Discard); err != nil {
			t.Error(err)
		}
	}
	text, err := os.ReadFile(public)
	if err != nil {
		t.Fatal(err)
	}
	key := strings.Split(string(text), "\n")[1]
	if err := publicKey(t, key).VerifyFile(filepath.Join(dir, "file"), io.Discard); err != nil {
		t.Errorf("with the key as text: %v", err)
	}
}

// A secret key that minisign encrypted is decrypted by its password only.
func TestEncryptedKey(t *testing.T) {
	testenv.Programs(t, "minisign")
	dir, key := t.TempDir(), filepath.Join("testdata", "encrypted.key")
	write(t, filepath.Join(dir, "password"), "secret words\r\nother line\n")
	signer, err := LoadSigner(key, func() (string, error) { return ReadPassword(filepath.Join(dir, "password")) })
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(dir, "file")
	write(t, path, "text")
	if err := signer.Sign(path); err != nil {
		t.Fatal(err)
	}
	run(t, ".", "", "-V", "-p", "testdata/encrypted.pub", "-m", path)
	_, err = LoadSigner(key, func() (string, error) { return "secret word", nil })
	if err == nil || !strings.Contains(err.Error(), "wrong password") || strings.Contains(err.Error(), "secret word") {
		t.Errorf("wrong password: got error %v", err)
	}
	broken := errors.New("no terminal")
	if _, err = LoadSigner(key, func() (string, error) { return "", broken }); !errors.Is(err, broken) {
		t.Errorf("got error %v, want %v", err, broken)
	}
}

// Every flipped bit of a file is detected, and each of a signature except in its untrusted comment.
func TestChanges(t *testing.T) {
	dir := t.TempDir()
	signer, public := keys(t, dir)
	key, path := publicKey(t, public), filepath.Join(dir, "file")
	const content = "some text"
	write(t, path, content)
	if err := signer.Sign(path); err != nil {
		t.Fatal(err)
	}
	original, err := os.ReadFile(path + Suffix)
	if err != nil {
		t.Fatal(err)
	}
	comment := [2]int{len("untrusted comment: "), bytes.IndexByte(original, '\n')}
	for i := range 8 * len(content) {
		changed := []byte(content)
		changed[i/8] ^= 1 << (i % 8)
		if key.verify("file", bytes.NewReader(changed), original) == nil {
			t.Errorf("flipped bit %d of the file is not detected", i)
		}
	}
	for i := range 8 * len(original) {
		changed := bytes.Clone(original)
		changed[i/8] ^= 1 << (i % 8)
		if i/8 >= comment[0] && i/8 < comment[1] {
			continue
		}
		if key.verify("file", strings.NewReader(content), changed) == nil {
			t.Errorf("flipped bit %d of the signature is not detected:\n%s", i, changed)
		}
	}
	if err := key.VerifyFile(path, io.Discard); err != nil {
		t.Error(err)
	}
}

func TestRejected(t *testing.T) {
	dir, other := t.TempDir(), t.TempDir()
	signer, public := keys(t, dir)
	_, otherPublic := keys(t, other)
	path := filepath.Join(dir, "file")
	write(t, path, "text")
	if err := signer.Sign(path); err != nil {
		t.Fatal(err)
	}
	copyTo := func(name string) string {
		t.Helper()
		for _, suffix := range []string{"", Suffix} {
			text, err := os.ReadFile(path + suffix)
			if err != nil {
				t.Fatal(err)
			}
			write(t, filepath.Join(dir, name)+suffix, string(text))
		}
		return filepath.Join(dir, name)
	}
	renamed := copyTo("renamed")
	legacy := copyTo("legacy")
	run(t, dir, "", "-S", "-l", "-s", "key", "-m", "legacy")
	nameless := copyTo("nameless")
	run(t, dir, "", "-S", "-t", "a comment", "-s", "key", "-m", "nameless")
	large := copyTo("large")
	write(t, large+Suffix, strings.Repeat("x", 1<<20))
	missing := filepath.Join(dir, "missing")
	write(t, missing, "text")
	for _, c := range []struct{ path, key, want string }{
		{path, otherPublic, "made with key"},
		{renamed, public, `named "file"`},
		{legacy, public, "minisign -l"},
		{nameless, public, "names no file"},
		{large, public, "more than 16384 bytes"},
		{missing, public, "missing.minisig"},
	} {
		err := publicKey(t, c.key).VerifyFile(c.path, io.Discard)
		if err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: got error %v, want one with %q", c.path, err, c.want)
		}
	}
}

func TestKeyFiles(t *testing.T) {
	dir := t.TempDir()
	keys(t, dir)
	secret, err := os.ReadFile(filepath.Join(dir, "key"))
	if err != nil {
		t.Fatal(err)
	}
	comment, encoded, _ := strings.Cut(strings.TrimSpace(string(secret)), "\n")
	damaged, err := base64.StdEncoding.DecodeString(encoded)
	if err != nil {
		t.Fatal(err)
	}
	damaged[len(damaged)-40] ^= 1 // in the public half
	for name, c := range map[string]struct{ text, want string }{
		"large":   {strings.Repeat("A", 1<<20), "more than 4096 bytes"},
		"empty":   {"", "invalid"},
		"text":    {"not a key", "illegal base64"},
		"damaged": {comment + "\n" + base64.StdEncoding.EncodeToString(damaged), "public half"},
	} {
		path := filepath.Join(dir, name)
		write(t, path, c.text)
		if _, err := LoadSigner(path, noPassword(t)); err == nil || !strings.Contains(err.Error(), c.want) ||
			!strings.Contains(err.Error(), path) {
			t.Errorf("secret key %s: got error %v, want one with %q", name, err, c.want)
		}
		if name == "damaged" {
			continue
		}
		if _, err := LoadPublicKey(path); err == nil || !strings.Contains(err.Error(), path) {
			t.Errorf("public key %s: got error %v", name, err)
		}
	}
	if _, err := LoadSigner(filepath.Join(dir, "key.pub"), noPassword(t)); err == nil {
		t.Error("a public key is accepted as secret key")
	}
	if _, err := LoadPublicKey(filepath.Join(dir, "key")); err == nil {
		t.Error("a secret key is accepted as public key")
	}
	if _, err := LoadPublicKey(filepath.Join(dir, "none")); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("missing public key: got error %v", err)
	}
}

func TestNames(t *testing.T) {
	dir := t.TempDir()
	signer, _ := keys(t, dir)
	path := filepath.Join(dir, "two\nlines")
	write(t, path, "text")
	if err := signer.Sign(path); err == nil {
		t.Error("signed a file whose name has a line break")
	}
}

// example returns a public key and a signature of the file "file" with the content "text".
func example(t testing.TB) (PublicKey, []byte) {
	t.Helper()
	public, secret, err := minisign.GenerateKey(strings.NewReader(strings.Repeat("seed", 64)))
	if err != nil {
		t.Fatal(err)
	}
	reader := minisign.NewReader(strings.NewReader("text"))
	if _, err := io.Copy(io.Discard, reader); err != nil {
		t.Fatal(err)
	}
	return PublicKey{public}, reader.SignWithComments(secret, "file:file", "")
}

func FuzzVerify(f *testing.F) {
	key, valid := example(f)
	f.Add(valid)
	f.Add(bytes.ReplaceAll(valid, []byte("\n"), []byte("\r\n")))
	f.Add(valid[:len(valid)/2])
	f.Add([]byte("untrusted comment: \n\ntrusted comment: \n"))
	var want minisign.Signature
	if err := want.UnmarshalText(valid); err != nil {
		f.Fatal(err)
	}
	f.Fuzz(func(t *testing.T, text []byte) {
		if err := key.verify("file", strings.NewReader("text"), text); err != nil {
			return
		}
		var got minisign.Signature
		if err := got.UnmarshalText(text); err != nil || !got.Equal(want) {
			t.Errorf("accepted another signature: %q", text)
		}
	})
}

func FuzzLoadPublicKey(f *testing.F) {
	key, _ := example(f)
	f.Add([]byte(key.key.String()))
	f.Add([]byte("untrusted comment: minisign public key\n" + key.key.String() + "\n"))
	f.Add([]byte("untrusted comment: \n"))
	path := filepath.Join(f.TempDir(), "key")
	f.Fuzz(func(t *testing.T, text []byte) {
		if err := os.WriteFile(path, text, 0o600); err != nil {
			t.Fatal(err)
		}
		_, _ = LoadPublicKey(path)
	})
}
