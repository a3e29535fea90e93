package main

import (
	"strings"
	"testing"

	"ironroot/initramfs/debian"
)

// The lock file pins every package that images are built from, and the kernels that the meta packages depend on.
func TestLockFile(t *testing.T) {
	pinned := map[string]bool{}
	kernels := 0
	for _, p := range debian.Pinned() {
		if p.Suite != debian.DefaultSuite {
			continue
		}
		pinned[p.Name+":"+p.Arch] = true
		if strings.HasPrefix(p.Name, "linux-image-") {
			kernels++
		}
	}
	metaPackages := 0
	for _, pkg := range lockedPackages() {
		name, _, _ := strings.Cut(pkg, ":")
		if !pinned[pkg] && !pinned[name+":all"] {
			t.Errorf("package %s is not in %s; run make lock", pkg, debian.LockPath)
		}
		if strings.HasPrefix(name, "linux-image-") {
			metaPackages++
		}
	}
	if kernels != 2*metaPackages {
		t.Errorf("got %d kernel packages in the lock file, want %d meta packages and a kernel for each",
			kernels, metaPackages)
	}
}
