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
		Source: Source{
			URLs: append(source("http://mirror/i", "", Digest{}).URLs,
				source("https://user:in%2Furl@host/i", "", Digest{}).URLs...),
			Digest:  sha256Digest("http://user:in-checksum@host/SHA256SUMS"),
			Proxies: proxies(map[string]string{"http": "http://user:in-proxy@proxy:3128"}, ""),
			Auth:    Auth{Password: "of-the-image", Header: "Bearer of-the-registry"},
		},
		ConfigDrive: "http://user:in-drive@host/drive",
	}); err != nil {
		t.Fatal(err)
	}
	if _, err := i.fetchOptions(ImageInfo{Source: Source{Auth: Auth{Header: "a-token-without-a-scheme"}}}); err != nil {
		t.Fatal(err)
	}
	for _, d := range []Digest{
		selectDigest("http://user:in-unused-sum@host/SUMS", "sha256", "1"),
		selectDigest("1", "crc32", "http://user:in-unused-value@host/SUMS"),
	} {
		if _, err := i.fetchOptions(ImageInfo{Source: Source{Digest: d}}); err != nil {
			t.Fatal(err)
		}
	}
	secrets := []string{
		"in-unused-sum", "in-unused-value",
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
	s := source("http://user:password@images.example/", "", Digest{})
	s.Auth.Password = "a secret"
	i.redactSecrets(ImageInfo{Source: s})
}
