package signature

import (
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/iotest"
)

// A file that cannot be read is neither signed nor verified, and a signature that cannot be written is an error.
func TestFileErrors(t *testing.T) {
	dir := t.TempDir()
	signer, public := keys(t, dir)
	key, path := publicKey(t, public), filepath.Join(dir, "file")
	write(t, path, "text")
	if err := signer.Sign(path); err != nil {
		t.Fatal(err)
	}
	if err := os.Remove(path); err != nil {
		t.Fatal(err)
	}
	if err := key.VerifyFile(path, io.Discard); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("verify a missing file: got error %v, want %v", err, os.ErrNotExist)
	}
	if err := signer.Sign(path); !errors.Is(err, os.ErrNotExist) || !strings.Contains(err.Error(), "sign "+path) {
		t.Errorf("sign a missing file: got error %v, want %v", err, os.ErrNotExist)
	}
	if err := os.Mkdir(path, 0o700); err != nil {
		t.Fatal(err)
	}
	if err := key.VerifyFile(path, io.Discard); err == nil || !strings.Contains(err.Error(), "is a directory") {
		t.Errorf("verify a directory: got error %v", err)
	}
	if err := signer.Sign(path); err == nil || !strings.Contains(err.Error(), "is a directory") {
		t.Errorf("sign a directory: got error %v", err)
	}
	blocked := filepath.Join(dir, "blocked")
	write(t, blocked, "text")
	if err := os.Mkdir(blocked+Suffix, 0o700); err != nil {
		t.Fatal(err)
	}
	if err := signer.Sign(blocked); err == nil || !strings.Contains(err.Error(), blocked+Suffix) {
		t.Errorf("write a signature to a directory: got error %v", err)
	}
	if password, err := ReadPassword(filepath.Join(dir, "none")); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("password in a missing file: got %q and error %v, want %v", password, err, os.ErrNotExist)
	}
}

// The content of a file is only verified if all of it could be read.
func TestVerifyReadError(t *testing.T) {
	key, signature := example(t)
	broken := errors.New("read error")
	content := io.MultiReader(strings.NewReader("text"), iotest.ErrReader(broken))
	if err := key.verify("file", content, signature); !errors.Is(err, broken) {
		t.Errorf("got error %v, want %v", err, broken)
	}
}
