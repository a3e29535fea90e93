package container

import (
	"os"
	"path/filepath"
	"testing"

	"ironroot/internal/test/attack"
	"ironroot/internal/test/attack/attacktest"
)

// No program of an image escapes from its container. A privileged one has rights that bootc needs.
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
		attacktest.Check(t, []byte(got), attack.PermittedInContainer(privileged))
	}
}
