package rescue

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"ironroot/internal/password"
)

func TestSaveAndLoad(t *testing.T) {
	root := t.TempDir()
	if IsMarked(root) {
		t.Error("a machine without files is marked")
	}
	if _, err := Load(root); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("without a file: got %v, want that it does not exist", err)
	}
	for _, secret := range []string{"first", "second"} { // a rescue can be requested again
		hash, err := password.New(secret)
		if err != nil {
			t.Fatal(err)
		}
		if err := Save(root, hash); err != nil {
			t.Fatal(err)
		}
		text, err := os.ReadFile(filepath.Join(root, "etc/ipa-rescue-config/ipa-rescue-password"))
		if err != nil || string(text) != hash.Text() {
			t.Errorf("got file %q, %v, want the hash only", text, err)
		}
		loaded, err := Load(root)
		if err != nil || !loaded.Matches([]byte(secret)) {
			t.Errorf("the loaded hash is not that of %q: %v", secret, err)
		}
	}
	info, err := os.Stat(filepath.Join(root, "etc/ipa-rescue-config/ipa-rescue-password"))
	if err != nil || info.Mode() != 0o600 {
		t.Errorf("got mode %v, %v, want 0600", info.Mode(), err)
	}
	marker, err := os.ReadFile(filepath.Join(root, "etc/.rescued"))
	if err != nil || len(marker) != 0 || !IsMarked(root) {
		t.Errorf("got marker %q, %v, want an empty one", marker, err)
	}
}

// A hash that is not stored leaves no marker.
func TestSaveFails(t *testing.T) {
	root := t.TempDir()
	if err := os.MkdirAll(filepath.Join(root, "etc/ipa-rescue-config/ipa-rescue-password/x"), 0o755); err != nil {
		t.Fatal(err)
	}
	hash, err := password.New("secret")
	if err != nil {
		t.Fatal(err)
	}
	if err := Save(root, hash); err == nil || strings.Contains(err.Error(), hash.Text()) {
		t.Errorf("got error %v, want one without the hash", err)
	}
	if IsMarked(root) {
		t.Error("the machine is marked")
	}
	root = t.TempDir()
	if err := os.MkdirAll(filepath.Join(root, markerFile, "x"), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := Save(root, hash); err == nil || !strings.Contains(err.Error(), markerFile) {
		t.Errorf("marker not written: got error %v, want one that names it", err)
	}
}

// A damaged file is an error that does not contain its text.
func TestLoadDamaged(t *testing.T) {
	for text, want := range map[string]string{
		"": password.ErrFormat.Error(), "planted": password.ErrFormat.Error(),
		"$1$salt$planted":                password.ErrFormat.Error(),
		strings.Repeat("planted", 10000): "more than 4096 bytes",
	} {
		root := t.TempDir()
		if err := os.MkdirAll(filepath.Join(root, "etc/ipa-rescue-config"), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(root, passwordFile), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		_, err := Load(root)
		if err == nil || !strings.Contains(err.Error(), want) || strings.Contains(err.Error(), "planted") {
			t.Errorf("%.20q: got error %v, want %q without the text", text, err, want)
		}
	}
}
