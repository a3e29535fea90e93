package initramfs

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"ironroot/initramfs/modules"
	"ironroot/uinit/kmod"
)

// Of two modules with the same name, the one that depmod would list is used. The groups match modules outside of
// kernel/ by the path below their directory.
func TestSearchOrder(t *testing.T) {
	const release = "lib/modules/6.12.0/"
	for _, c := range []struct {
		name  string
		files []string
		want  string
	}{
		{
			"updates win",
			[]string{"kernel/drivers/net/ethernet/intel/e1000e/e1000e.ko.xz", "updates/e1000e.ko.xz"},
			"updates/e1000e.ko.xz",
		},
		{
			"dkms",
			[]string{"kernel/drivers/nvme/host/nvme.ko.zst", "updates/dkms/nvme.ko.zst"},
			"updates/dkms/nvme.ko.zst",
		},
		{
			"extra wins",
			[]string{"extra/kmod-ice/ice.ko.xz", "kernel/drivers/net/ethernet/intel/ice/ice.ko.xz"},
			"extra/kmod-ice/ice.ko.xz",
		},
		{
			"updates before extra",
			[]string{"kernel/drivers/net/virtio_net.ko", "extra/virtio_net.ko", "updates/virtio_net.ko"},
			"updates/virtio_net.ko",
		},
		{
			"weak updates lose",
			[]string{"kernel/drivers/net/virtio_net.ko", "weak-updates/virtio_net.ko"},
			"kernel/drivers/net/virtio_net.ko",
		},
		{
			"new driver with a tree",
			[]string{"updates/drivers/net/ethernet/vendor/vendor.ko"},
			"updates/drivers/net/ethernet/vendor/vendor.ko",
		},
		{"not selected", []string{"updates/dkms/nvidia.ko", "kernel/drivers/gpu/drm/i915/i915.ko"}, ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			selection, err := modules.Select([]string{"server"})
			if err != nil {
				t.Fatal(err)
			}
			for range 2 { // in both orders
				var files []*Module
				for _, name := range c.files {
					tree, rank, ok := treeName(release + name)
					if !ok {
						t.Fatalf("%s is not recognized as a module", name)
					}
					files = append([]*Module{{
						path: name, Tree: tree, rank: rank,
						Info: &kmod.Module{Name: strings.SplitN(filepath.Base(name), ".", 2)[0]},
					}}, files...)
				}
				got := ""
				for _, f := range choose(files, selection) {
					got += f.path
				}
				if got != c.want {
					t.Errorf("got %q, want %q", got, c.want)
				}
				slices.Reverse(c.files)
			}
		})
	}
	for _, name := range []string{"lib/modules/6.12.0/modules.builtin", "boot/config-6.12.0"} {
		if _, _, ok := treeName(name); ok {
			t.Errorf("%s is recognized as a module", name)
		}
	}
}

// A module's directory is computed from its path, even if its modinfo was cached by another version.
func TestCachedModinfo(t *testing.T) {
	dir := t.TempDir()
	module := filepath.Join(dir, "lib/modules/6.1.0/kernel/drivers/net/tulip.ko")
	err := errors.Join(
		os.MkdirAll(filepath.Dir(module), 0o755),
		os.WriteFile(module, []byte("not read"), 0o600),
		os.WriteFile(filepath.Join(dir, modinfoFile),
			[]byte(`{"lib/modules/6.1.0/kernel/drivers/net/tulip.ko":{"Name":"tulip"}}`), 0o600),
	)
	if err != nil {
		t.Fatal(err)
	}
	files, err := ListModules(t.Context(), dir)
	if err != nil || len(files) != 1 || files[0].Info.Name != "tulip" || files[0].Info.Dir != "drivers/net" {
		t.Errorf("got %+v and %v, want tulip in drivers/net", files, err)
	}
}
