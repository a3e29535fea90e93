package osimage

import (
	"strings"
	"testing"
)

// The recipe contains what is built into an image, so that a change of it leads to another key in the cache.
func TestRecipe(t *testing.T) {
	for arch, parts := range map[string][]string{
		"amd64": {"linux-image-cloud-amd64", "sysvinit-core", "INSTANCE-UP"},
		"arm64": {
			"linux-image-cloud-arm64", `ModuleGroups: []string{"virtual"}`, "grubaa64.efi.signed",
			"linux /vmlinuz quiet console=ttyAMA0", "INSTANCE-UP",
		},
	} {
		text := strings.Join(recipe(Options{Arch: arch, Suite: "trixie"}), "\n")
		for _, part := range append(parts, "trixie") {
			if !strings.Contains(text, part) {
				t.Errorf("recipe for %s lacks %q", arch, part)
			}
		}
	}
	if first, second := key(Options{Suite: "a"}), key(Options{Suite: "b"}); first == second {
		t.Errorf("got the key %s for both releases", first)
	}
}
