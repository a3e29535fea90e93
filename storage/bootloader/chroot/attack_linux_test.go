package chroot

import (
	"errors"
	"path/filepath"
	"testing"

	"ironroot/internal/test/attack"
	"ironroot/internal/test/attack/attacktest"
	"ironroot/internal/test/testenv"
)

// The GRUB of an image does not escape, neither with the rights that Btrfs requires nor without them.
func TestAttacks(t *testing.T) {
	program := filepath.Join(t.TempDir(), "attack")
	attacktest.Build(t, program)
	install := func(path string) { testenv.Run(t, "cp", program, path) }
	for _, s := range []System{
		systemOf(t, install, 64<<20, "mkfs.ext4", "-q", "-d"),
		systemOf(t, install, 128<<20, "mkfs.btrfs", "-q", "--rootdir"),
	} {
		var failed *Error
		if err := Run(t.Context(), s, nil, "installer", "fail"); !errors.As(err, &failed) {
			t.Fatalf("got %v, want the output of the program", err)
		}
		attacktest.Check(t, []byte(failed.Output), attack.PermittedOutsideContainers())
	}
}
