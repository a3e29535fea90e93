package osimage_test

import (
	"context"
	"os"
	"regexp"
	"testing"
	"time"

	"ironroot/internal/test/testenv"
	"ironroot/lab/osimage"
	"ironroot/lab/qemu"
)

func image(t *testing.T) *osimage.Image {
	t.Helper()
	testenv.Root(t)
	testenv.Programs(t, "mmdebstrap", "mke2fs", "mformat", "qemu-img")
	i, err := osimage.Build(t.Context(), osimage.Options{Progress: t.Output()})
	if err != nil {
		t.Fatal(err)
	}
	return i
}

func TestImageBoots(t *testing.T) {
	testenv.Programs(t, "qemu-system-x86_64")
	i := image(t)
	qcow2, err := i.QCOW2(t.Context(), false)
	if err != nil {
		t.Fatal(err)
	}
	for _, firmware := range []qemu.Firmware{qemu.UEFI, qemu.BIOS} {
		t.Run(string(firmware), func(t *testing.T) {
			dir := t.TempDir()
			overlay := dir + "/disk.qcow2"
			testenv.Run(t, "qemu-img", "create", "-q", "-f", "qcow2", "-F", "qcow2", "-b", qcow2, overlay)
			began := time.Now()
			m, err := qemu.Start(t.Context(), qemu.Config{
				Dir: dir, Firmware: firmware, Memory: 384 << 20,
				Disks: []qemu.Disk{{File: overlay, Format: "qcow2", Boot: 1}},
			})
			if err != nil {
				t.Fatal(err)
			}
			defer m.Stop() //nolint:errcheck // a leftover fails the next start
			ctx, cancel := context.WithTimeout(t.Context(), 10*time.Minute)
			defer cancel()
			match, err := m.Console().Follow(ctx, regexp.MustCompile(`INSTANCE-UP (\S+)\s+CONFIG-DRIVE (\S+)\s`))
			if err != nil {
				t.Fatal(err)
			}
			t.Logf("up after %.1f s", time.Since(began).Seconds())
			if match.Groups[1] != "instance" || match.Groups[2] != "missing" {
				t.Errorf("got %q, want host name instance and no config drive", match.Groups)
			}
		})
	}
}

func TestImageIsSmallAndItsTableIsSound(t *testing.T) {
	testenv.Programs(t, "sgdisk")
	i := image(t)
	if i.Size > 700<<20 {
		t.Errorf("got %d MiB, want at most 700", i.Size>>20)
	}
	if out := testenv.Run(t, "sgdisk", "-v", i.Raw); !regexp.MustCompile(`No problems found`).MatchString(out) {
		t.Errorf("sgdisk -v: %s", out)
	}
	if info, err := os.Stat(i.Raw); err != nil || info.Size() != i.Size {
		t.Errorf("got %v, %v, want a file of %d bytes", info, err, i.Size)
	}
}

// The image for arm64 boots on a machine with Secure Boot.
func TestARMImageBoots(t *testing.T) {
	testenv.Programs(t, "qemu-system-aarch64", "mke2fs", "mformat")
	i, err := osimage.Build(t.Context(), osimage.Options{Arch: "arm64", Progress: t.Output()})
	if err != nil {
		t.Fatal(err)
	}
	disk := t.TempDir() + "/disk.raw"
	testenv.Run(t, "cp", "--sparse=always", i.Raw, disk)
	began := time.Now()
	m, err := qemu.Start(t.Context(), qemu.Config{
		Dir: t.TempDir(), Arch: "arm64", Firmware: qemu.UEFISecure, Memory: 384 << 20,
		Disks: []qemu.Disk{{File: disk, Boot: 1}},
	})
	if err != nil {
		t.Fatal(err)
	}
	defer m.Stop() //nolint:errcheck // a leftover fails the next start
	ctx := testenv.Context(t, 10*time.Minute)
	for expression, want := range map[*regexp.Regexp]string{osimage.Up: "instance", osimage.ConfigDrive: "missing"} {
		match, err := m.Console().Follow(ctx, expression)
		if err != nil {
			t.Fatalf("%v; the console ends with\n%s", err, m.Console().Tail(40))
		}
		if match.Groups[1] != want {
			t.Errorf("got %q, want %s", match.Groups[0], want)
		}
	}
	t.Logf("up after %.1f s", time.Since(began).Seconds())
}
