package netloaders

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/google/go-cmp/cmp"

	"ironroot/initramfs/debian"
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
		if got, err := Read(t.Context(), names, dir, o); err == nil {
			t.Errorf("%v: got %d boot loaders and no error", names, len(got))
		}
	}
}
