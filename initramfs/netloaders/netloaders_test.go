package netloaders

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"ironroot/initramfs/debian"
	"ironroot/netboot/pxe"
)

// Boot loaders in the directory are preferred to Debian's, which are then not fetched.
func TestRead(t *testing.T) {
	dir := t.TempDir()
	want := map[string][]byte{"undionly.kpxe": []byte("own BIOS"), "snponly.efi": []byte("own")}
	for name, content := range want {
		if err := os.WriteFile(filepath.Join(dir, name), content, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	o := debian.Options{Mirror: "file:///nonexistent", Offline: true, CacheDir: t.TempDir()}
	got, err := Read(t.Context(), []string{"undionly.kpxe", "snponly.efi"}, dir, o)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	for _, names := range [][]string{{"shimx64.efi"}, {"none"}} {
		got, err := Read(t.Context(), names, dir, o)
		if err == nil || strings.Contains(err.Error(), "--loaders") { // a flag of the command
			t.Errorf("%v: got %d boot loaders and error %v, want an error without the flag", names, len(got), err)
		}
	}
}

// Every boot loader that machines need is in a package.
func TestSources(t *testing.T) {
	for _, secure := range []bool{false, true} {
		for _, name := range pxe.LoaderNames([]string{"amd64", "arm64"}, secure) {
			if _, found := sources[name]; !found {
				t.Errorf("boot loader %q is in no package, Secure Boot %t", name, secure)
			}
		}
	}
}
