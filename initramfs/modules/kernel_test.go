package modules_test

import (
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"ironroot/initramfs"
	"ironroot/initramfs/debian"
	"ironroot/initramfs/modules"
)

// Every line of the groups matches a module, or a built-in part, of Debian's kernel. Lines without an architecture are
// compared with the amd64 kernel.
func TestListsAgainstKernel(t *testing.T) {
	for _, arch := range []string{"amd64", "arm64"} {
		t.Run(arch, func(t *testing.T) {
			names := kernelModules(t, arch)
			for _, group := range modules.Groups() {
				lines, err := modules.Unmatched([]string{group}, arch, names)
				if err != nil {
					t.Fatal(err)
				}
				for _, line := range lines {
					t.Errorf("group %s: the kernel has no module %s", group, line)
				}
			}
			if got, err := modules.Unmatched([]string{"virtual"}, arch, nil); err != nil ||
				arch == "amd64" && len(got) == 0 {
				t.Errorf("a kernel without modules: got %q, %v, want every line of the group", got, err)
			}
		})
	}
}

// kernelModules returns the modules of Debian's kernel, including built-in ones, as paths below the kernel's tree
// without suffix.
func kernelModules(t *testing.T, arch string) []string {
	t.Helper()
	cache, err := os.UserCacheDir()
	if err != nil {
		t.Fatal(err)
	}
	archive, err := debian.Open(debian.Options{Progress: t.Output()})
	if err != nil {
		t.Fatal(err)
	}
	kernel, err := initramfs.FetchKernel(t.Context(), archive, filepath.Join(cache, "ironroot"),
		"linux-image-"+arch+":"+arch, t.Logf)
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	add := func(path string) {
		if _, name, found := strings.Cut(path, "kernel/"); found {
			name, _, _ = strings.Cut(name, ".ko")
			names = append(names, name)
		}
	}
	err = filepath.WalkDir(kernel.Modules, func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		if d.Name() == "modules.builtin" {
			text, err := os.ReadFile(path)
			for line := range strings.Lines(string(text)) {
				add(strings.TrimSpace(line))
			}
			return err
		}
		if below, err := filepath.Rel(kernel.Modules, path); err == nil && strings.Contains(d.Name(), ".ko") {
			add(below)
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return names
}
