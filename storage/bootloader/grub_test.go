package bootloader

import (
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"ironroot/internal/test/testenv"
	"ironroot/storage/bootloader/chroot"
	"ironroot/storage/mounted"
	"ironroot/storage/partition"
	"ironroot/storage/sysfs"
)

// TestMain runs the child process that enters the root of an image.
func TestMain(m *testing.M) {
	chroot.Child()
	os.Exit(m.Run())
}

// grubDisk makes a loop device with an MBR and a bootable root, which contains the installer under the given names.
func grubDisk(t *testing.T, installer, uuid string, programs ...string) string {
	t.Helper()
	testenv.Root(t)
	testenv.Programs(t, "sfdisk", "mkfs.ext4")
	tree := t.TempDir()
	for _, name := range []string{"dev", "proc", "sys", "run", "tmp", "etc"} {
		if err := os.MkdirAll(filepath.Join(tree, name), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	for _, name := range programs {
		testenv.Run(t, "install", "-D", installer, filepath.Join(tree, name))
	}
	root := testenv.SparseFile(t, 64<<20)
	testenv.Run(t, "mkfs.ext4", "-q", "-U", uuid, "-d", tree, root)
	image := testenv.SparseFile(t, 80<<20)
	testenv.Run(t, "sh", "-c",
		`printf 'label: dos\nlabel-id: 0xdeadbeef\nstart=2048, size=8192, type=41\nstart=10240, type=83, bootable\n' |
		PATH=$PATH:/usr/sbin sfdisk -q "$0"`, image)
	testenv.Run(t, "dd", "if="+root, "of="+image, "bs=1M", "seek=5", "conv=notrunc,sparse", "status=none")
	device := testenv.Loop(t, image, 512)
	if err := partition.Sync(t.Context(), sysfs.Root{}, device); err != nil {
		t.Fatal(err)
	}
	return device
}

// report returns the report of a program of the image, "" if it was not run.
func report(t *testing.T, device, name string) string {
	t.Helper()
	root, err := mounted.Open(t.Context(), device, false)
	if err != nil {
		t.Fatal(err)
	}
	defer root.Close()
	f, err := root.Regular("etc/" + name)
	if errors.Is(err, os.ErrNotExist) {
		return ""
	}
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	text, err := io.ReadAll(f)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

func TestInstallGRUB(t *testing.T) {
	installer := filepath.Join(t.TempDir(), "installer")
	testenv.Run(t, "env", "CGO_ENABLED=0", "go", "build", "-o", installer, "./chroot/testdata/installer")
	const install, config = "usr/sbin/grub-install", "usr/sbin/grub-mkconfig"
	for _, tt := range []struct {
		name     string
		programs []string
		prep     string // UUID of the PReP partition
		code     bool   // the disk has a boot sector
		target   string // arguments of grub-install after the disk's path; "-" when it is not run
		err      error
	}{
		{name: "disk", programs: []string{install, config}},
		{name: "boot sector", programs: []string{install, config}, code: true, target: "-"},
		{name: "PReP partition", programs: []string{install, config}, prep: "deadbeef-01", code: true, target: "p1"},
		{name: "the other name", programs: []string{"usr/sbin/grub2-install", "usr/bin/grub2-mkconfig"}},
		{name: "no menu", programs: []string{install}, err: chroot.ErrNoProgram},
		{name: "no GRUB", target: "-", err: chroot.ErrNoProgram},
	} {
		t.Run(tt.name, func(t *testing.T) {
			uuid := newUUID(t)
			device := grubDisk(t, installer, uuid, tt.programs...)
			if tt.code {
				testenv.Run(t, "sh", "-c", `printf '\353\143\220' | dd of="$0" conv=notrunc,fsync status=none`, device)
			}
			err := InstallGRUB(t.Context(), GRUB{Disk: device, RootUUID: uuid, PRePUUID: tt.prep, Log: quiet})
			if !errors.Is(err, tt.err) || tt.err != nil && !strings.Contains(err.Error(), device) {
				t.Errorf("got %v, want %v that names the disk", err, tt.err)
			}
			name, menu := "grub-install", "grub-mkconfig"
			if tt.name == "the other name" {
				name, menu = "grub2-install", "grub2-mkconfig"
			}
			got := report(t, device+"p2", name)
			if tt.target == "-" {
				if got != "" {
					t.Errorf("%s was run: %s", name, got)
				}
				return
			}
			if want := "argument " + device + tt.target + ","; !strings.Contains(got, want) {
				t.Errorf("%s: got %q, want %q in it", name, got, want)
			}
			if got := report(t, device+"p2", menu); tt.err == nil && !strings.Contains(got, "argument -o,") {
				t.Errorf("%s: got %q, want it run", menu, got)
			}
		})
	}
	device := grubDisk(t, installer, newUUID(t))
	if err := InstallGRUB(t.Context(),
		GRUB{Disk: device, RootUUID: newUUID(t), Log: quiet}); !errors.Is(err, ErrNoRoot) {
		t.Errorf("no such root: got %v, want %v", err, ErrNoRoot)
	}
}
