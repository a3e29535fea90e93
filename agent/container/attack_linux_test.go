package container

import (
	"os"
	"path/filepath"
	"testing"

	"ironroot/internal/attack/attacktest"
)

// No program of an image leaves its container. A privileged one has rights that bootc needs.
func TestAttacks(t *testing.T) {
	dir := t.TempDir()
	if err := os.MkdirAll(filepath.Join(dir, "tmp"), 0o755); err != nil {
		t.Fatal(err)
	}
	attacktest.Build(t, filepath.Join(dir, "attack"))
	b := preparedFrom(t, nil, archive(t, dir))
	for _, privileged := range []bool{false, true} {
		got, err := run(t, b, Spec{Args: []string{"/attack"}, Privileged: privileged})
		if err != nil {
			t.Fatalf("privileged %t: %v: %s", privileged, err, got)
		}
		permitted := map[string]string{
			"memory of process 1": "it is confined by the same filter, and the agent trusts none of its messages",
		}
		if privileged {
			for _, name := range []string{"open_tree", "move_mount", "pivot_root", "setns"} {
				permitted[name] = "bootc mounts in its namespaces, and leads to no others"
			}
		}
		attacktest.Check(t, got, permitted)
	}
}
