package imaging

import (
	"bytes"
	"log/slog"
	"strings"
	"testing"

	"ironroot/agent/config"
	"ironroot/agent/journal"
)

// Logs about an image's servers contain no credentials.
func TestSecretsOfAnImage(t *testing.T) {
	var console bytes.Buffer
	j := journal.New(&console, &slog.LevelVar{}, 1<<20)
	i := New(Options{Config: config.NewLive(&config.Config{}), Journal: j})
	if _, err := i.fetchOptions(ImageInfo{
		URLs:          []string{"http://mirror/i", "https://user:in%2Furl@host/i"},
		OSHashValue:   "http://user:in-checksum@host/SHA256SUMS",
		ConfigDrive:   "http://user:in-drive@host/drive",
		Proxies:       map[string]string{"http": "http://user:in-proxy@proxy:3128"},
		AuthPassword:  "of-the-image",
		Authorization: "Bearer of-the-registry",
	}); err != nil {
		t.Fatal(err)
	}
	if _, err := i.fetchOptions(ImageInfo{Authorization: "a-token-without-a-scheme"}); err != nil {
		t.Fatal(err)
	}
	secrets := []string{
		"a-token-without-a-scheme", "in%2Furl", "in/url", "in-checksum", "in-drive", "in-proxy", "of-the-image",
		"of-the-registry",
	}
	j.Logger().Info("the server says", "err", strings.Join(secrets, " "), "url", "http://mirror/i")
	for _, secret := range secrets {
		if strings.Contains(console.String(), secret) {
			t.Errorf("%s is on the console: %s", secret, console.String())
		}
	}
	if !strings.Contains(console.String(), "http://mirror/i") {
		t.Errorf("got %s, want the rest of the line", console.String())
	}
}

// Without a journal, secrets need not be registered.
func TestSecretsWithoutAJournal(t *testing.T) {
	i := New(Options{Config: config.NewLive(&config.Config{})})
	i.redactSecrets(ImageInfo{AuthPassword: "a secret", URLs: []string{"http://user:password@images.example/"}})
}
