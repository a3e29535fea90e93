//go:build linux

package main

import (
	"encoding/base64"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// The search finds a pull secret in each form in which a program could store it.
func TestSearchFiles(t *testing.T) {
	const password = "p?~>wrong-horse" // its base64 forms differ
	const pair = "ironic:" + password
	forms, err := secretForms(pair)
	if err != nil {
		t.Fatal(err)
	}
	std, url := base64.StdEncoding.EncodeToString, base64.URLEncoding.EncodeToString
	if std([]byte(password)) == url([]byte(password)) {
		t.Fatal("the base64 forms are the same")
	}
	for name, tt := range map[string]struct {
		content string
		found   bool
	}{
		"plain":                {"password=" + password + "\n", true},
		"auth.json":            {`{"auths": {"host:5000": {"auth": "` + std([]byte(pair)) + `"}}}`, true},
		"auth.json by URL":     {`{"auths": {"host:5000": {"auth": "` + url([]byte(pair)) + `"}}}`, true},
		"password":             {std([]byte(password)), true},
		"password by URL":      {url([]byte(password)), true},
		"as Ironic sends it":   {std([]byte(std([]byte(pair)))), true},
		"without padding":      {base64.RawStdEncoding.EncodeToString([]byte(pair)), true},
		"nothing":              {"", false},
		"user":                 {"ironic:", false},
		"secret of an image":   {"TERCES=esroh-gnorw>~?p:cinori", false},
		"other pair in base64": {std([]byte("ironic:other")), false},
	} {
		t.Run(name, func(t *testing.T) {
			root := t.TempDir()
			file := filepath.Join(root, "run/containers/0/auth.json")
			if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
				t.Fatal(err)
			}
			if err := os.WriteFile(file, []byte(tt.content), 0o600); err != nil {
				t.Fatal(err)
			}
			err := searchFiles(root, forms)
			if found := err != nil && strings.HasPrefix(err.Error(), file+" contains"); found != tt.found ||
				err != nil && strings.Contains(err.Error(), password) {
				t.Errorf("got %v, want found %v", err, tt.found)
			}
		})
	}
	for _, pair := range []string{"", "ironic", "ironic:"} {
		if forms, err := secretForms(pair); err == nil {
			t.Errorf("%q: got %q, want an error", pair, forms)
		}
	}
}
