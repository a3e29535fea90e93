package iso

import (
	"bytes"
	"compress/gzip"
	"context"
	"debug/pe"
	"encoding/binary"
	"errors"
	"io/fs"
	"math/rand/v2"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/u-root/mkuimage/cpio"

	"ironroot/internal/test/testenv"
	"ironroot/storage/fat"
	"ironroot/storage/iso9660"
)

// Offsets in the master boot record, by which tests check the structure.
const (
	mbrCodeSize  = 432
	mbrIsolinux  = 432
	mbrTable     = 446
	mbrEntrySize = 16
)

// fakeLoaders returns loaders that boot nothing but have the right sizes and shapes.
func fakeLoaders() loaders {
	content := func(seed uint64, size int) []byte {
		b := make([]byte, size)
		r := rand.New(rand.NewPCG(seed, 1))
		for i := range b {
			b[i] = byte(r.Uint32())
		}
		return b
	}
	return loaders{
		arch: "amd64", isolinux: content(1, 38912), ldlinux: content(2, 119524), mbr: content(3, mbrCodeSize),
		shim: content(4, 1048504), grub: content(5, 3835328),
	}
}

// bzImage writes a file that has no more of a kernel than its header.
func bzImage(t *testing.T, size int) string {
	t.Helper()
	return writeFile(t, "kernel", testenv.BzImage(size))
}

// armKernel returns a file that has no more of a kernel for arm64 than its headers.
func armKernel(t *testing.T) []byte {
	t.Helper()
	kernel := uefiProgram(t, pe.IMAGE_FILE_MACHINE_ARM64, 100_000)
	copy(kernel[0x38:], "ARM\x64")
	return kernel
}

func gzipped(t *testing.T, content []byte) []byte {
	t.Helper()
	var out bytes.Buffer
	z := gzip.NewWriter(&out)
	if _, err := z.Write(content); err != nil {
		t.Fatal(err)
	}
	if err := z.Close(); err != nil {
		t.Fatal(err)
	}
	return out.Bytes()
}

func writeFile(t *testing.T, name string, content []byte) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), name)
	if err := os.WriteFile(path, content, 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

func buildImage(t *testing.T) string {
	t.Helper()
	archive := testenv.Archive(t, cpio.StaticFile("x", strings.Repeat("x", 4090), 0o644))
	o, err := Options{
		Kernel: bzImage(t, 100_001), Initrd: writeFile(t, "initrd", archive),
		Out: filepath.Join(t.TempDir(), "out.iso"), Label: "TEST_1", CacheDir: t.TempDir(),
	}.complete()
	if err != nil {
		t.Fatal(err)
	}
	report, err := build(t.Context(), o, fakeLoaders(), t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	info, err := os.Stat(report.Path)
	if err != nil {
		t.Fatal(err)
	}
	if info.Size() != report.Size || info.Size()%(1<<20) != 0 {
		t.Errorf("size: got %d, reported %d, want equal and whole MiB", info.Size(), report.Size)
	}
	return o.Out
}

func TestImageIsReproducible(t *testing.T) {
	first, err := os.ReadFile(buildImage(t))
	if err != nil {
		t.Fatal(err)
	}
	<-time.After(time.Until(time.Now().Truncate(time.Second).Add(time.Second))) // time stamps count in seconds
	second, err := os.ReadFile(buildImage(t))
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(first, second) {
		at := slices.IndexFunc(first, func(byte) bool { return false })
		for i := range min(len(first), len(second)) {
			if first[i] != second[i] {
				at = i
				break
			}
		}
		t.Errorf("two builds differ, first at byte %d (sector %d)", at, at/blockSize)
	}
}

// Other tools read what was written: the kernel's and GNU's views of the partition table, the file system and the ESP.
func TestOtherToolsReadTheImage(t *testing.T) {
	testenv.Programs(t, "sfdisk", "fsck.vfat", "isoinfo", "mdir")
	image := buildImage(t)
	table := testenv.Run(t, "sfdisk", "--dump", image)
	if !strings.Contains(table, "type=ef") {
		t.Errorf("partition table: got\n%s\nwant an entry of type ef", table)
	}
	listing := testenv.Run(t, "isoinfo", "-R", "-f", "-i", image)
	got := strings.Fields(listing)
	slices.Sort(got)
	want := []string{
		"/.disk", "/.disk/info", "/boot", "/boot/grub", "/boot/grub/efi.img", "/boot/grub/grub.cfg", "/initrd",
		"/isolinux", "/isolinux/isolinux.bin", "/isolinux/isolinux.cfg", "/isolinux/ldlinux.c32", "/vmlinuz",
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("files (-want +got):\n%s", diff)
	}
	info := testenv.Run(t, "isoinfo", "-d", "-i", image)
	for _, want := range []string{
		"Volume id: TEST_1", "El Torito VD version 1 found", "Rock Ridge signatures version 1 found",
	} {
		if !strings.Contains(info, want) {
			t.Errorf("volume: got\n%s\nwant %q", info, want)
		}
	}
	esp := testenv.Run(t, "isoinfo", "-R", "-x", "/boot/grub/efi.img", "-i", image)
	path := writeFile(t, "esp", []byte(esp))
	testenv.Run(t, "fsck.vfat", "-n", "-v", path)
	for _, name := range []string{"BOOTX64", "GRUBX64"} {
		if listing := testenv.Run(t, "mdir", "-b", "-i", path, "::/EFI/BOOT"); !strings.Contains(listing, name+".EFI") {
			t.Errorf("EFI system partition: got %q, want %s in it", listing, name)
		}
	}
}

// Every name has an ECMA-119 identifier that is valid and unique in its directory, with a leading dot as genisoimage
// writes it. The agent's reader, which does not accept others, reads the whole image by the complete names.
func TestIdentifiers(t *testing.T) {
	testenv.Programs(t, "isoinfo")
	image := buildImage(t)
	for view, want := range map[string][]string{
		"-f": {
			"/BOOT", "/BOOT/GRUB", "/BOOT/GRUB/EFI.IMG;1", "/BOOT/GRUB/GRUB.CFG;1", "/INITRD.;1", "/ISOLINUX",
			"/ISOLINUX/ISOLINUX.BIN;1", "/ISOLINUX/ISOLINUX.CFG;1", "/ISOLINUX/LDLINUX.C32;1", "/VMLINUZ.;1", "/_DISK",
			"/_DISK/INFO.;1",
		},
		"-p": {"BOOT", "GRUB", "ISOLINUX", "_DISK"}, // the path table
	} {
		var got []string
		for _, field := range strings.Fields(testenv.Run(t, "isoinfo", view, "-i", image)) {
			if view == "-f" || strings.ContainsAny(field, "_BGIK") && strings.ToUpper(field) == field {
				got = append(got, field)
			}
		}
		slices.Sort(got)
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("identifiers (-want +got):\n%s", diff)
		}
	}
	checkTree(t, image, map[string]string{".disk/info": "TEST_1\n"}, 12)

	files := map[string]string{
		".a": "1", ".b.c": "2", ".d/.e": "3", "..f": "4", "long-name-one.conf": "5", "long-name-two.conf": "6",
		"long-name.d/x": "7", "long-name.e/x": "8", "A": "9", "two.dots.cfg": "10", espPath: "11",
	}
	tree, content := t.TempDir(), map[string][]byte{}
	for name, text := range files {
		content[name] = []byte(text)
	}
	if err := writeTree(tree, content); err != nil {
		t.Fatal(err)
	}
	f, err := os.Create(filepath.Join(t.TempDir(), "names.iso"))
	if err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(writeImage(f, tree, "config-2", false), correctRecords(f), f.Close()); err != nil {
		t.Fatal(err)
	}
	checkTree(t, f.Name(), files, len(files)+5)
}

// checkTree checks that the agent's reader finds these files in an image, and the number of all files and directories.
func checkTree(t *testing.T, image string, want map[string]string, count int) {
	t.Helper()
	f, err := os.Open(image)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	files, err := iso9660.Open(f)
	if err != nil {
		t.Fatal(err)
	}
	err = fs.WalkDir(files, ".", func(path string, d fs.DirEntry, err error) error {
		if err != nil || path == "." {
			return err
		}
		count--
		text, found := want[path]
		if d.IsDir() || !found {
			return nil
		}
		if got, err := files.ReadFile(path); err != nil || string(got) != text {
			t.Errorf("%s: got %q, %v, want %q", path, got, err, text)
		}
		delete(want, path)
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	if len(want) != 0 || count != 0 {
		t.Errorf("files missing: %v; number of files and directories is %d below what was wanted", want, count)
	}
}

// An image for arm64 has boot loaders for UEFI only. Firmware finds them on a CD and on a stick.
func TestARMImageHasLoadersForUEFIOnly(t *testing.T) {
	testenv.Programs(t, "sfdisk", "fsck.vfat", "isoinfo", "mcopy")
	for name, kernel := range map[string][]byte{"image": armKernel(t), "compressed": zbootKernel(t)} {
		o, err := Options{
			Kernel: writeFile(t, "kernel", kernel), Initrd: writeFile(t, "initrd", testenv.Archive(t)),
			Out: filepath.Join(t.TempDir(), "out.iso"), CacheDir: t.TempDir(),
		}.complete()
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		l := fakeLoaders()
		l = loaders{arch: o.Arch, shim: l.shim, grub: l.grub}
		if _, err := build(t.Context(), o, l, t.TempDir()); err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		files := strings.Fields(testenv.Run(t, "isoinfo", "-R", "-f", "-i", o.Out))
		slices.Sort(files)
		want := []string{
			"/.disk", "/.disk/info", "/boot", "/boot/grub", "/boot/grub/efi.img", "/boot/grub/grub.cfg", "/initrd",
			"/vmlinuz",
		}
		if diff := cmp.Diff(want, files); diff != "" {
			t.Errorf("%s: files (-want +got):\n%s", name, diff)
		}
		grub := testenv.Run(t, "isoinfo", "-R", "-x", "/boot/grub/grub.cfg", "-i", o.Out)
		if !strings.Contains(grub, "'console=ttyAMA0,115200n8'") || strings.Contains(grub, "ttyS0") {
			t.Errorf("%s: got\n%s\nwant the serial console of arm64", name, grub)
		}
		if info := testenv.Run(t, "isoinfo", "-d", "-i", o.Out); !strings.Contains(info, "Arch 239") {
			t.Errorf("%s: boot catalog: got\n%s\nwant platform 239 (EFI)", name, info)
		}
		image, err := os.ReadFile(o.Out)
		if err != nil {
			t.Fatal(err)
		}
		if table := testenv.Run(t, "sfdisk", "--dump", o.Out); !strings.Contains(table, "type=ef") {
			t.Errorf("%s: partition table: got\n%s\nwant an entry of type ef", name, table)
		}
		entry := image[mbrTable:]
		start := int(binary.LittleEndian.Uint32(entry[8:])) * sector
		esp := writeFile(t, "esp", image[start:start+int(binary.LittleEndian.Uint32(entry[12:]))*sector])
		testenv.Run(t, "fsck.vfat", "-n", esp)
		for name, content := range map[string][]byte{"BOOTAA64.EFI": l.shim, "GRUBAA64.EFI": l.grub} {
			if got := testenv.Run(t, "mcopy", "-i", esp, "::/EFI/BOOT/"+name, "-"); got != string(content) {
				t.Errorf("%s: got %d bytes, want the %d that were written", name, len(got), len(content))
			}
		}
	}
}

// zbootKernel returns the headers of a kernel for arm64 that unpacks itself.
func zbootKernel(t *testing.T) []byte {
	t.Helper()
	kernel := uefiProgram(t, pe.IMAGE_FILE_MACHINE_ARM64, 100_000)
	copy(kernel, "MZ\x00\x00zimg")
	return kernel
}

// The partition table and the boot record point at what they should.
func TestHybridPointers(t *testing.T) {
	image, err := os.ReadFile(buildImage(t))
	if err != nil {
		t.Fatal(err)
	}
	l := fakeLoaders()
	isolinux := binary.LittleEndian.Uint64(image[mbrIsolinux:]) * sector
	// Bytes 8 to 63 are the boot information table.
	if got, want := image[isolinux+64:isolinux+uint64(len(l.isolinux))], l.isolinux[64:]; !bytes.Equal(got, want) {
		t.Errorf("isolinux at byte %d: other content", isolinux)
	}
	if got := binary.LittleEndian.Uint32(image[isolinux+8:]); got != primaryBlock {
		t.Errorf("boot information table: got sector %d, want %d", got, primaryBlock)
	}
	entry := image[mbrTable+mbrEntrySize:]
	start := uint64(binary.LittleEndian.Uint32(entry[8:])) * sector
	want, err := espImage(t.Context(), l)
	if err != nil {
		t.Fatal(err)
	}
	if size := uint64(binary.LittleEndian.Uint32(entry[12:])) * sector; size != uint64(len(want)) {
		t.Errorf("EFI system partition: got %d bytes, want %d", size, len(want))
	} else if !bytes.Equal(image[start:start+size], want) {
		t.Errorf("EFI system partition at byte %d: other content", start)
	}
}

// The EFI system partition is FAT16 for loaders of any size. Its files have short names only and the image's date.
func TestESPIsFAT16(t *testing.T) {
	testenv.Programs(t, "fsck.vfat", "mcopy")
	for _, size := range []int{0, 1, sector, 100_000, 2 << 20, 15_000_000} {
		l := loaders{arch: "amd64", shim: bytes.Repeat([]byte{7}, size), grub: bytes.Repeat([]byte{8}, size+1)}
		raw, err := espImage(t.Context(), l)
		if err != nil {
			t.Fatalf("loaders of %d bytes: %v", size, err)
		}
		if got := string(raw[54:62]); got != "FAT16   " {
			t.Errorf("loaders of %d bytes: got %q, want FAT16", size, got)
		}
		path := writeFile(t, "esp", raw)
		testenv.Run(t, "fsck.vfat", "-n", path)
		list, day := testenv.Run(t, "mdir", "-/", "-i", path, "::/"), epoch.Format("2006-01-02")
		days := slices.Compact(regexp.MustCompile(`\d{4}-\d\d-\d\d`).FindAllString(list, -1))
		if !strings.Contains(list, "is IRONROOT") || !slices.Equal(days, []string{day}) || strings.Contains(list, "~") {
			t.Errorf("got\n%s\nwant the label IRONROOT, all files of %s and no alias of a long name", list, day)
		}
		for name, content := range map[string][]byte{"BOOTX64.EFI": l.shim, "GRUBX64.EFI": l.grub} {
			if got := testenv.Run(t, "mcopy", "-i", path, "::/EFI/BOOT/"+name, "-"); got != string(content) {
				t.Errorf("%s: got %d bytes, want the %d that were written", name, len(got), len(content))
			}
		}
	}
	large := loaders{arch: "amd64", shim: make([]byte, 40<<20)}
	if _, err := espImage(t.Context(), large); !errors.Is(err, fat.ErrFull) {
		t.Errorf("40 MiB: got %v, want %v", err, fat.ErrFull)
	}
}

func TestInputsAreChecked(t *testing.T) {
	kernel := bzImage(t, 4096)
	truncated := writeFile(t, "k", testenv.BzImage(4096)[:4000])
	initrd := writeFile(t, "initrd", testenv.Archive(t))
	arm, packed := writeFile(t, "arm", armKernel(t)), writeFile(t, "packed", gzipped(t, armKernel(t)))
	noStub := make([]byte, 4096)
	copy(noStub[0x38:], "ARM\x64")
	other := uefiProgram(t, pe.IMAGE_FILE_MACHINE_AMD64, 1000)
	copy(other, "MZ\x00\x00zimg")
	for name, c := range map[string]struct {
		options Options
		want    string
	}{
		"no kernel":       {Options{Initrd: initrd, Out: "x"}, "kernel, initrd and output"},
		"kernel missing":  {Options{Kernel: "/nonexistent", Initrd: initrd, Out: "x"}, "/nonexistent"},
		"kernel is empty": {Options{Kernel: writeFile(t, "k", nil), Initrd: initrd, Out: "x"}, "is empty"},
		"kernel is text": {
			Options{Kernel: writeFile(t, "k", make([]byte, 4096)), Initrd: initrd, Out: "x"}, "no boot flag",
		},
		"kernel is ELF":   {Options{Kernel: writeFile(t, "k", []byte("\x7fELF")), Initrd: initrd, Out: "x"}, "ELF"},
		"kernel is gzip":  {Options{Kernel: packed, Initrd: initrd, Out: "x"}, "gzip"},
		"kernel is arm64": {Options{Kernel: arm, Initrd: initrd, Out: "x", Arch: "amd64"}, "is for arm64, want"},
		"kernel is amd64": {Options{Kernel: kernel, Initrd: initrd, Out: "x", Arch: "arm64"}, "is for amd64, want"},
		"kernel without stub": {
			Options{Kernel: writeFile(t, "k", noStub), Initrd: initrd, Out: "x"}, "is not a UEFI program",
		},
		"kernel is another program": {
			Options{Kernel: writeFile(t, "k", other), Initrd: initrd, Out: "x"}, "is for amd64, want a bzImage or",
		},
		"truncated kernel": {Options{Kernel: truncated, Initrd: initrd, Out: "x"}, "has 4000 bytes, want 4096"},
		"truncated initrd": {
			Options{Kernel: kernel, Initrd: writeFile(t, "i", testenv.Archive(t)[:100]), Out: "x"}, "ends at byte 100",
		},
		"swapped": {Options{Kernel: kernel, Initrd: kernel, Out: "x"}, "want a cpio archive"},
		"label":   {Options{Kernel: kernel, Initrd: initrd, Out: "x", Label: "a b"}, "label"},
		"long label": {
			Options{Kernel: kernel, Initrd: initrd, Out: "x", Label: strings.Repeat("a", 33)}, "33 characters",
		},
		"line break": {Options{Kernel: kernel, Initrd: initrd, Out: "x", Cmdline: "a\nb"}, "control character"},
		"open quote": {Options{Kernel: kernel, Initrd: initrd, Out: "x", Cmdline: `a="b`}, "open quote"},
		"long line": {
			Options{Kernel: kernel, Initrd: initrd, Out: "x", Cmdline: strings.Repeat("a", 2048)}, "2048 characters",
		},
	} {
		t.Run(name, func(t *testing.T) {
			ctx, cancel := context.WithCancel(t.Context())
			cancel() // nothing may be fetched before the inputs were looked at
			_, err := Build(ctx, c.options)
			if err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("got %v, want an error with %q", err, c.want)
			}
		})
	}
}
