package efivarfs

import (
	"bytes"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"testing"
)

// FuzzSecureBoot reads arbitrary content of the variable. A state is returned only if the content is attributes and
// that state, so that nothing else makes Secure Boot seem disabled. Errors are short.
func FuzzSecureBoot(f *testing.F) {
	f.Add([]byte("\x06\x00\x00\x00\x01"))
	f.Add([]byte("\x06\x00\x00\x00\x00"))
	f.Add([]byte("\x06\x00\x00\x00\x02"))
	f.Add([]byte("\x06\x00\x00\x00"))
	f.Add([]byte("\x06\x00\x00\x00\x00\x00"))
	f.Fuzz(func(t *testing.T, content []byte) {
		enabled, err := SecureBoot("efivars", func(path string) ([]byte, error) {
			if filepath.Base(path) != SecureBootFile { // those by which it is not enforced
				return nil, fs.ErrNotExist
			}
			return bytes.Clone(content), nil
		})
		if err != nil {
			if enabled || len(err.Error()) > 200 {
				t.Errorf("% x: got %t and an error of %d bytes", content, enabled, len(err.Error()))
			}
			return
		}
		state := byte(0)
		if enabled {
			state = 1
		}
		if want := append(bytes.Clone(content[:min(len(content), 4)]), state); !bytes.Equal(content, want) {
			t.Errorf("% x: got %t, want an error", content, enabled)
		}
	})
}

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

// With these variables, Linux reports that Secure Boot is disabled, or not (drivers/firmware/efi/libstub/secureboot.c).
func TestSecureBootNotEnforced(t *testing.T) {
	const (
		setup = "SetupMode-8be4df61-93ca-11d2-aa0d-00e098032b8c"
		shim  = "MokSBStateRT-605dab50-e046-4300-abb6-3dd810dd8b23"
	)
	for _, tt := range []struct {
		name, file, variable string
		want                 bool
	}{
		{"user mode", setup, "\x06\x00\x00\x00\x00", true},
		{"setup mode", setup, "\x06\x00\x00\x00\x01", false},
		{"validation by shim disabled", shim, "\x06\x00\x00\x00\x01", false},
		{"validation by shim enabled", shim, "\x06\x00\x00\x00\x00", true},
		{"made by a system that ran before", shim, "\x07\x00\x00\x00\x01", true},
		{"no value", shim, "\x06\x00\x00\x00", true},
		{"two bytes", shim, "\x06\x00\x00\x00\x01\x00", true},
	} {
		dir := t.TempDir()
		for name, variable := range map[string]string{SecureBootFile: "\x06\x00\x00\x00\x01", tt.file: tt.variable} {
			if err := os.WriteFile(filepath.Join(dir, name), []byte(variable), 0o600); err != nil {
				t.Fatal(err)
			}
		}
		if got, err := SecureBoot(dir, os.ReadFile); got != tt.want || err != nil {
			t.Errorf("%s: got %t, %v, want %t", tt.name, got, err, tt.want)
		}
	}
}
