package bootfile

import (
	"bytes"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/u-root/mkuimage/cpio"

	"ironroot/internal/test/foreign"
	"ironroot/internal/test/testenv"
)

func write(t *testing.T, name string, content []byte) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), name)
	if err := os.WriteFile(path, content, 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

// packers are commands that compress an initramfs from stdin to stdout, by names.
var packers = map[string][]string{
	"cpio":           {"cat"},
	"gzip":           {"gzip", "-c"},
	"gzip of a name": {"sh", "-c", `cat >"$0"/x && gzip -c "$0"/x`, "DIR"},
	"zstd":           {"zstd", "-c"},
	"zstd long":      {"zstd", "-19", "--no-check", "-c"},
	"zstd of a file": {"sh", "-c", `cat >"$0"/x && zstd -c "$0"/x`, "DIR"},
	"xz":             {"xz", "--check=crc32", "-c"},
	"lzma":           {"xz", "--format=lzma", "-c"},
	"lz4":            {"lz4", "-l", "-c"},
	"bzip2":          {"bzip2", "-c"},
	"lzo":            {"lzop", "-c"},
}

// contentOf returns an archive with content that does not compress well, of several blocks of each format.
func contentOf(t *testing.T) []byte {
	t.Helper()
	program, err := os.ReadFile(os.Args[0])
	if err != nil {
		t.Fatal(err)
	}
	return testenv.Archive(t, cpio.Directory("d", 0o755), cpio.StaticFile("d/x", string(program[:300_000]), 0o644))
}

func packed(t *testing.T, name string, archive []byte) []byte {
	t.Helper()
	command := append([]string(nil), packers[name]...)
	testenv.Programs(t, command[0], "sh")
	if last := len(command) - 1; command[last] == "DIR" {
		command[last] = t.TempDir()
	}
	path := write(t, "archive", archive)
	return []byte(testenv.Run(t, "sh", append([]string{"-c", `in=$0; "$@" <"$in"`, path}, command...)...))
}

// Archives of the tools that build initramfs archives are accepted, alone, padded, and one after the other. Truncated
// ones are errors in the formats whose end is checked. The last bytes of a plain archive are padding.
func TestCheckInitrd(t *testing.T) {
	archive := contentOf(t)
	for name := range packers {
		t.Run(name, func(t *testing.T) {
			testenv.Programs(t, packers[name][0])
			content := packed(t, name, archive)
			padded := append(bytes.Clone(content), make([]byte, 8-len(content)%4)...)
			for _, good := range [][]byte{content, padded, append(bytes.Clone(padded), archive...)} {
				if err := CheckInitrd(write(t, "initrd", good)); err != nil {
					t.Errorf("%d bytes: %v", len(good), err)
				}
			}
			if kind, _, _ := strings.Cut(name, " "); !slices.Contains([]string{"cpio", "gzip", "zstd"}, kind) {
				return // only its beginning is checked
			}
			for _, size := range []int{3, 10, len(content) / 3, len(content) / 2, len(content) - 5} {
				err := CheckInitrd(write(t, "initrd", content[:size]))
				if err == nil || size >= maxMagic && !strings.Contains(err.Error(), fmt.Sprintf("byte %d", size)) {
					t.Errorf("%d of %d bytes: got %v, want an error with the number", size, len(content), err)
				}
			}
			err := CheckInitrd(write(t, "initrd", append(padded, archive[:1000]...)))
			if err == nil || !strings.Contains(err.Error(), "truncated: ends at byte") {
				t.Errorf("second archive truncated: got %v", err)
			}
			if err := CheckInitrd(write(t, "initrd", append(padded, "text"...))); err == nil {
				t.Error("text at the end: got no error")
			}
		})
	}
}

// Archives of GNU cpio are accepted, and so is a boot configuration at the end.
func TestCheckInitrdOfCPIO(t *testing.T) {
	archive := testenv.CABundle(t, []byte("certificate"))
	config := append(bytes.Clone(archive), "kernel.quiet\n\x00\x00\x00\x10\x00\x00\x00\x00\x10\x00\x00#BOOTCONFIG\n"...)
	for _, good := range [][]byte{archive, config} {
		if err := CheckInitrd(write(t, "initrd", good)); err != nil {
			t.Error(err)
		}
	}
	for want, bad := range map[string][]byte{
		"is empty":                     nil,
		"has only zeros":               make([]byte, 100),
		"want a cpio archive":          []byte("text"),
		"begins at byte 514, want a m": append(make([]byte, 514), archive...),
		"ends at byte 512 in the cpio": archive[:512],
		`begins with "x`:               bytes.Replace(archive, []byte("\x00070701"), []byte("\x00x70701"), 1),
	} {
		if err := CheckInitrd(write(t, "initrd", bad)); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("got %v, want an error with %q", err, want)
		}
	}
}

// Debian's signed kernels are accepted, for arm64 also compressed by gzip. Without their last bytes they are not.
func TestKernelArch(t *testing.T) {
	testenv.Programs(t, "gzip")
	for _, arch := range []string{"amd64", "arm64"} {
		kernel, err := os.ReadFile(foreign.Kernel(t, arch))
		if err != nil {
			t.Fatal(err)
		}
		compressed := packed(t, "gzip", kernel)
		if got, err := KernelArch(write(t, "kernel", kernel)); err != nil || got != arch {
			t.Errorf("%s: got %q, %v", arch, got, err)
		}
		if _, err := KernelArch(write(t, "kernel", compressed)); err == nil || !strings.Contains(err.Error(), "gzip") {
			t.Errorf("%s compressed: got %v, want an error with gzip", arch, err)
		}
		got, isPacked, err := PackedKernelArch(write(t, "kernel", compressed))
		if err != nil || got != arch || !isPacked {
			t.Errorf("%s compressed: got %q, %t, %v", arch, got, isPacked, err)
		}
		for _, content := range [][]byte{kernel, compressed} {
			for _, size := range []int{len(content) / 2, len(content) - 1} {
				if _, _, err := PackedKernelArch(write(t, "kernel", content[:size])); err == nil {
					t.Errorf("%s: %d of %d bytes: got no error", arch, size, len(content))
				}
			}
		}
	}
	// The size in the setup header alone.
	kernel := testenv.BzImage(4096)
	if got, err := KernelArch(write(t, "kernel", kernel)); err != nil || got != "amd64" {
		t.Errorf("got %q, %v", got, err)
	}
	want := "has 4095 bytes, want 4096"
	if _, err := KernelArch(write(t, "kernel", kernel[:4095])); err == nil || !strings.Contains(err.Error(), want) {
		t.Errorf("got %v, want an error with %q", err, want)
	}
}

// The checksum of sha256sum next to a kernel or an initramfs is compared with it, also in other common forms.
func TestCheckSum(t *testing.T) {
	testenv.Programs(t, "sha256sum")
	kernel := write(t, "kernel", testenv.BzImage(4096))
	initrd := write(t, "initrd", testenv.Archive(t))
	for path, check := range map[string]func() error{
		kernel: func() error { _, err := KernelArch(kernel); return err },
		initrd: func() error { return CheckInitrd(initrd) },
	} {
		for _, option := range []string{"--text", "--binary", "--tag"} {
			text := testenv.Run(t, "sha256sum", option, path)
			for content, isGood := range map[string]bool{
				text: true, "00  other\n" + text: true, strings.ToUpper(text): true, "": false,
				testenv.Run(t, "sha256sum", option, "/dev/null"): false,
			} {
				if err := os.WriteFile(path+".sha256", []byte(content), 0o600); err != nil {
					t.Fatal(err)
				}
				if err := check(); (err == nil) != isGood {
					t.Errorf("%s with %q: got %v, want success: %t", path, content, err, isGood)
				}
			}
		}
		if err := os.Remove(path + ".sha256"); err != nil {
			t.Fatal(err)
		}
		if err := check(); err != nil {
			t.Error(err)
		}
	}
	if err := CheckPair("arm64", kernel, initrd); err == nil {
		t.Error("kernel for amd64: got no error, want arm64")
	}
	if err := CheckPair("amd64", kernel, initrd+"x"); err == nil || !strings.Contains(err.Error(), "initrdx") {
		t.Errorf("got %v, want %v", err, fs.ErrNotExist)
	}
}

// Arbitrary bytes cause no panic, and an empty file is an error.
func FuzzCheckInitrd(f *testing.F) {
	f.Add(testenv.Archive(f, cpio.StaticFile("x", "y", 0o644)))
	for _, head := range []string{
		"\x1f\x8b\x08\x00", "\x5d\x00\x00\x80\x00", "\xfd7zXZ\x00\x00\x01",
		"\x28\xb5\x2f\xfd\x24\x01\x09\x00\x00a\x00\x00\x00\x00",
	} {
		f.Add([]byte(head))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		if err := checkArchives(bytes.NewReader(data)); err == nil && len(data) == 0 {
			t.Error("got no error for an empty file")
		}
	})
}

// Arbitrary bytes cause no panic; an accepted kernel is for a known architecture.
func FuzzKernelArch(f *testing.F) {
	f.Add(testenv.BzImage(2048))
	f.Fuzz(func(t *testing.T, data []byte) {
		arch, err := kernelArch(bytes.NewReader(data), int64(len(data)))
		if err == nil && arch != "amd64" && arch != "arm64" {
			t.Errorf("got %q, %v", arch, err)
		}
	})
}
