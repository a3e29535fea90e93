//go:build linux

package boot

import (
	"os"
	"path/filepath"
	"testing"

	"ironroot/agent/config"
)

// Files that a second archive or virtual media put into the ramdisk's /etc are the agent's configuration, over the
// kernel's parameters.
func TestConfigFiles(t *testing.T) {
	root := t.TempDir()
	for name, content := range map[string]string{
		"etc/ironic-python-agent/agent.conf":             "[DEFAULT]\ncafile = /one\ninsecure = true\n",
		"etc/ironic-python-agent/ironic.crt":             "certificate",
		"etc/ironic-python-agent.d/10-first.conf":        "[DEFAULT]\ncafile = /two\napi_url = http://first\n",
		"etc/ironic-python-agent.d/20-ironic-tls.conf":   "[DEFAULT]\napi_url = https://second\n",
		"etc/ironic-python-agent.d/30-editor-left.conf~": "[DEFAULT]\napi_url = http://backup\n",
	} {
		path := filepath.Join(root, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	c, err := config.Load(config.Sources{
		Params: config.Params{"ipa-api-url": "http://kernel"}, Files: configFiles(root),
	})
	if err != nil {
		t.Fatal(err)
	}
	if c.APIURL != "https://second" || c.CAFile != "/two" || !c.Insecure {
		t.Errorf("got api_url %q, cafile %q, insecure %v, want https://second, /two, true",
			c.APIURL, c.CAFile, c.Insecure)
	}
}
