package iso

import (
	"bytes"
	"compress/gzip"
	"context"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/u-root/mkuimage/cpio"

	"ironroot/initramfs/debian"
	"ironroot/internal/testenv"
	"ironroot/lab/qemu"
)

// The command line of the image under test: a parameter of our own behind the default ones, and a quoted one.
const testCmdline = DefaultCmdline + ` quiet test.word=42 test.quoted="one two"`

// foreignKernel returns Debian's small kernel for virtual machines.
func foreignKernel(t *testing.T) string {
	t.Helper()
	cache, err := os.UserCacheDir()
	if err != nil {
		t.Fatal(err)
	}
	cache = filepath.Join(cache, "ironroot", "packages")
	pkg := "linux-image-cloud-amd64"
	for range 2 { // the meta package, then what it stands for
		deb, err := debian.Fetch(t.Context(), cache, pkg)
		if err != nil {
			t.Fatal(err)
		}
		dir := t.TempDir()
		isKernel := func(name string) bool { return strings.HasPrefix(strings.TrimPrefix(name, "./"), "boot/vmlinuz-") }
		if err := debian.Extract(t.Context(), deb, dir, isKernel); err != nil {
			t.Fatal(err)
		}
		found, err := filepath.Glob(filepath.Join(dir, "boot", "vmlinuz-*"))
		if err != nil {
			t.Fatal(err)
		}
		if len(found) == 1 {
			return found[0]
		}
		depends, err := debian.Depends(deb)
		if err != nil {
			t.Fatal(err)
		}
		for _, d := range depends {
			if strings.HasPrefix(d, "linux-image-") {
				pkg = d
			}
		}
	}
	t.Fatalf("package %s holds no kernel", pkg)
	return ""
}

// foreignInitrd builds the ramdisk of testdata/hello.
func foreignInitrd(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	binary := filepath.Join(dir, "init")
	t.Setenv("CGO_ENABLED", "0")
	testenv.Run(t, "go", "build", "-trimpath", "-ldflags=-s -w -buildid=", "-o", binary, "./testdata/hello")
	content, err := os.ReadFile(binary)
	if err != nil {
		t.Fatal(err)
	}
	var archive bytes.Buffer
	w := cpio.Newc.Writer(&archive)
	for _, record := range []cpio.Record{
		cpio.Directory("dev", 0o755),
		cpio.CharDev("dev/console", 0o600, 5, 1),
		cpio.StaticFile("init", string(content), 0o755),
	} {
		if err := w.WriteRecord(record); err != nil {
			t.Fatal(err)
		}
	}
	if err := cpio.WriteTrailer(w); err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(dir, "initrd.gz")
	f, err := os.Create(path)
	if err != nil {
		t.Fatal(err)
	}
	zw := gzip.NewWriter(f)
	if _, err := zw.Write(archive.Bytes()); err != nil {
		t.Fatal(err)
	}
	if err := zw.Close(); err != nil {
		t.Fatal(err)
	}
	if err := f.Close(); err != nil {
		t.Fatal(err)
	}
	return path
}

// A kernel and an initramfs that are not ours boot from the image as CD and as USB stick, by BIOS, by UEFI, and by
// UEFI with Secure Boot.
//
// Parity: R10
func TestBootsEverywhere(t *testing.T) {
	testenv.Programs(t, "qemu-system-x86_64", "go", "apt-get")
	testenv.Files(t, "install Debian's package ovmf", "/usr/share/OVMF/OVMF_CODE_4M.secboot.fd", "/usr/share/OVMF/OVMF_VARS_4M.ms.fd")
	image := filepath.Join(t.TempDir(), "foreign.iso")
	_, err := Build(t.Context(), Options{
		Kernel: foreignKernel(t), Initrd: foreignInitrd(t), Out: image, Cmdline: testCmdline, Label: "FOREIGN", Log: t.Output(),
	})
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		name     string
		firmware qemu.Firmware
		stick    bool
	}{
		{"BIOS from CD", qemu.BIOS, false},
		{"BIOS from stick", qemu.BIOS, true},
		{"UEFI from CD", qemu.UEFI, false},
		{"UEFI from stick", qemu.UEFI, true},
		{"Secure Boot from CD", qemu.UEFISecure, false},
		{"Secure Boot from stick", qemu.UEFISecure, true},
	} {
		t.Run(c.name, func(t *testing.T) {
			config := qemu.Config{Name: c.name, Dir: t.TempDir(), Memory: 512 << 20, Firmware: c.firmware}
			if c.stick {
				config.Disks = []qemu.Disk{{Bus: qemu.USB, File: image, ReadOnly: true, Boot: 1}}
			} else {
				config.CDROM, config.CDBoot = image, 1
			}
			bootsHello(t, config)
		})
	}
}

func bootsHello(t *testing.T, config qemu.Config) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 3*time.Minute)
	defer cancel()
	started := time.Now()
	machine, err := qemu.Start(ctx, config)
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := machine.Stop(); err != nil {
			t.Error(err)
		}
	}()
	match, err := machine.Console().Follow(ctx, regexp.MustCompile(`HELLO-FROM-THE-RAMDISK cmdline=<(.*)> err=<nil>`))
	if err != nil {
		t.Fatalf("%v\n%s", err, machine.Console().Tail(4000))
	}
	t.Logf("ramdisk after %v", time.Since(started).Round(100*time.Millisecond))
	line := match.Groups[1]
	for _, want := range []string{"boot_method=vmedia", "console=ttyS0,115200n8", "test.word=42"} {
		if !strings.Contains(" "+line+" ", " "+want+" ") {
			t.Errorf("command line: got %q, want %q in it", line, want)
		}
	}
	// Loaders put the quotes around the value or around the whole word; to the kernel both are the same.
	if !strings.Contains(line, `test.quoted="one two"`) && !strings.Contains(line, `"test.quoted=one two"`) {
		t.Errorf("command line: got %q, want test.quoted with the value \"one two\"", line)
	}
}
