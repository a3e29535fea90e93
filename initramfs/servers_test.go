package initramfs

import (
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"

	"ironroot/initramfs/debian"
	"ironroot/initramfs/modules"
	"ironroot/internal/test/testenv"
	"ironroot/uinit/kmod"
)

// The modules that kmod finds for the storage controllers of recorded servers are found by this image's index, too, and
// the image contains all of them.
func TestStorageOfServers(t *testing.T) {
	testenv.Programs(t, "apt-get")
	cache, err := os.UserCacheDir()
	if err != nil {
		t.Fatal(err)
	}
	archive, err := debian.Open(debian.Options{Progress: t.Output()})
	if err != nil {
		t.Fatal(err)
	}
	kernel, err := FetchKernel(t.Context(), archive, filepath.Join(cache, "ironroot"), "linux-image-amd64:amd64",
		t.Logf)
	if err != nil {
		t.Fatal(err)
	}
	files, err := ListModules(t.Context(), kernel.Modules)
	if err != nil {
		t.Fatal(err)
	}
	selection, err := modules.Select([]string{"server"})
	if err != nil {
		t.Fatal(err)
	}
	var all []*kmod.Module
	stored := map[string]bool{}
	for _, f := range files {
		all = append(all, f.Info)
		stored[f.Info.Name] = selection.Has(f.Tree)
	}
	index := kmod.NewIndex(all)
	servers := testenv.Servers(t)
	if got, want := len(servers), 100; got < want {
		t.Errorf("got %d servers, want at least %d", got, want)
	}
	for _, server := range servers {
		for _, c := range server.Controllers {
			var got []string
			for _, m := range index.Match(c.Modalias()) {
				got = append(got, m.Name)
				if !stored[m.Name] {
					t.Errorf("%s: image lacks module %s for %s", server.Model, m.Name, c.Modalias())
				}
			}
			slices.Sort(got)
			if diff := cmp.Diff(c.Modules, slices.Compact(got)); diff != "" {
				t.Errorf("%s: %s: -want +got:\n%s", server.Model, c.Modalias(), diff)
			}
		}
	}
}
