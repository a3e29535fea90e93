//go:build linux

package images

import (
	"testing"

	"ironroot/internal/test/testenv"
	"ironroot/lab/e2e/rig"
)

// gptImage creates a disk image with a GPT, two partitions and random data.
func gptImage(t *testing.T, name string, size int64) string {
	t.Helper()
	testenv.Programs(t, "sgdisk")
	path := rig.File(t, name, size, rig.Noise())
	rig.Patch(t, path, 0, make([]byte, rig.MiB))
	rig.Patch(t, path, size-rig.MiB, make([]byte, rig.MiB))
	testenv.Run(t, "sgdisk", "-n", "1:1M:+8M", "-t", "1:ef00", "-c", "1:first", "-n", "2:9M:0", "-c", "2:second", path)
	return path
}

// zero reports whether the first MiB of a file contains only zeros.
func zero(t *testing.T, path string) bool {
	t.Helper()
	return rig.AllZero(rig.Read(t, path, 0, rig.MiB))
}
