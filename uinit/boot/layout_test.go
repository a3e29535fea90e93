//go:build linux

package boot_test

import (
	"bytes"
	"encoding/binary"
	"io"
	"os"
	"path/filepath"
	"testing"

	"github.com/ulikunitz/xz"

	"ironroot/initramfs"
	"ironroot/initramfs/debian"
	"ironroot/internal/test/testenv"
	"ironroot/lab/qemu"
)

// TestForeignLayout boots a kernel with the module layout of other distributions: below lib/modules/RELEASE,
// compressed with xz, and one module replaced by an unsigned one below updates/.
func TestForeignLayout(t *testing.T) {
	cache, err := os.UserCacheDir()
	if err != nil {
		t.Fatal(err)
	}
	archive, err := debian.Open(debian.Options{Progress: t.Output()})
	if err != nil {
		t.Fatal(err)
	}
	kernel, err := initramfs.FetchKernel(t.Context(), archive, filepath.Join(cache, "ironroot"),
		"linux-image-amd64:amd64", t.Logf)
	if err != nil {
		t.Fatal(err)
	}
	source := filepath.Join(kernel.Modules, "usr/lib/modules", kernel.Release)
	target := filepath.Join(t.TempDir(), kernel.Release)
	for _, part := range []string{
		"drivers/net/ethernet/intel/e1000e", "drivers/net/net_failover.ko.xz", "drivers/net/virtio_net.ko.xz",
		"drivers/virtio", "drivers/ptp", "drivers/pps", "net/core", "fs/fat", "fs/nls", "lib", "crypto",
	} {
		if err := os.MkdirAll(filepath.Join(target, "kernel", filepath.Dir(part)), 0o755); err != nil {
			t.Fatal(err)
		}
		if _, err := os.Stat(filepath.Join(source, "kernel", part)); err == nil {
			testenv.Run(t, "cp", "-r", filepath.Join(source, "kernel", part), filepath.Join(target, "kernel", part))
		}
	}
	const name = "e1000e.ko.xz"
	replaceUnsigned(t, filepath.Join(target, "kernel/drivers/net/ethernet/intel/e1000e", name),
		filepath.Join(target, "updates/dkms", name))
	report := ramdisk(t, initramfs.Options{
		Kernel: kernel.Image, Modules: target, ModuleGroups: []string{"network", "filesystems"}, NoFirmware: true,
		Init: programs + "modules",
	})
	m := start(t, report, "quiet", func(c *qemu.Config) { c.NICs = []qemu.NIC{{}, {Model: "e1000e"}} })
	expect(t, m, "the kernel got its file system", "loaded module=e1000e taint=E",
		"loaded module=virtio_net taint=none")
}

// replaceUnsigned writes a module without its signature.
func replaceUnsigned(t *testing.T, from, to string) {
	t.Helper()
	packed, err := os.ReadFile(from)
	if err != nil {
		t.Fatal(err)
	}
	r, err := xz.NewReader(bytes.NewReader(packed))
	if err != nil {
		t.Fatal(err)
	}
	image, err := io.ReadAll(r)
	if err != nil {
		t.Fatal(err)
	}
	// Linux, include/linux/module_signature.h: signature, 12 bytes that end in its length, magic text
	const magic = "~Module signature appended~\n"
	image, found := bytes.CutSuffix(image, []byte(magic))
	if !found {
		t.Fatalf("%s is not signed", from)
	}
	image = image[:len(image)-12-int(binary.BigEndian.Uint32(image[len(image)-4:]))]
	var out bytes.Buffer
	w, err := xz.NewWriter(&out)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := w.Write(image); err != nil {
		t.Fatal(err)
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	if err := os.MkdirAll(filepath.Dir(to), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(to, out.Bytes(), 0o600); err != nil {
		t.Fatal(err)
	}
}
