package efivarfs

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"testing"
)

func TestSecureBoot(t *testing.T) {
	dir := t.TempDir()
	if _, err := SecureBoot(dir, os.ReadFile); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("without the variable: got %v, want %v", err, fs.ErrNotExist)
	}
	for _, tt := range []struct {
		name, variable string
		want, bad      bool
	}{
		{"enabled", "\x06\x00\x00\x00\x01", true, false},
		{"disabled", "\x06\x00\x00\x00\x00", false, false},
		{"reserved value", "\x06\x00\x00\x00\x02", false, true},
		{"no value", "\x06\x00\x00\x00", false, true},
		{"two bytes", "\x06\x00\x00\x00\x01\x00", false, true},
		{"empty", "", false, true},
	} {
		if err := os.WriteFile(filepath.Join(dir, SecureBootFile), []byte(tt.variable), 0o600); err != nil {
			t.Fatal(err)
		}
		if got, err := SecureBoot(dir, os.ReadFile); got != tt.want || (err != nil) != tt.bad {
			t.Errorf("%s: got %t, %v, want %t, error %t", tt.name, got, err, tt.want, tt.bad)
		}
	}
}
