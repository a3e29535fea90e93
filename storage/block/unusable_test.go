package block

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestUnusableNamespaces(t *testing.T) {
	s := System{Root: t.TempDir()}
	if got, err := s.UnusableNamespaces(t.Context()); len(got) != 0 || err != nil {
		t.Errorf("no block devices: got %v and %v, want none", got, err)
	}
	for name, files := range map[string]map[string]string{
		"nvme0n1":   {"size": "2048\n", "hidden": "0\n"},
		"nvme0n2":   {"size": "0\n", "hidden": "0\n"},
		"nvme0n3":   {"size": "2048\n", "hidden": "1\n"},
		"nvme0c1n1": {"size": "2048\n", "hidden": "1\n"},
		"sda":       {"size": "0\n"},
	} {
		for _, dir := range []string{"block", "class/block"} {
			for file, text := range files {
				path := s.Sys(dir, name, file)
				if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
					t.Fatal(err)
				}
				if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
					t.Fatal(err)
				}
			}
		}
	}
	found, err := s.UnusableNamespaces(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, d := range found {
		got = append(got, d.Path)
	}
	if diff := cmp.Diff([]string{"/dev/nvme0n2", "/dev/nvme0n3"}, got); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
}
