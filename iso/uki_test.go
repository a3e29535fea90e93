package iso

import (
	"bytes"
	"debug/pe"
	"encoding/binary"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"ironroot/internal/test/testenv"
)

// uefiProgram returns a UEFI program without sections, followed by size bytes.
func uefiProgram(t *testing.T, machine uint16, size int) []byte {
	t.Helper()
	out := make([]byte, 0x40, 0x200)
	copy(out, "MZ")
	le := binary.LittleEndian
	le.PutUint32(out[0x3c:], 0x40)
	out = append(out, "PE\x00\x00"...)
	out, err := binary.Append(out, le, pe.FileHeader{
		Machine: machine, SizeOfOptionalHeader: uint16(binary.Size(pe.OptionalHeader64{})),
	})
	if err != nil {
		t.Fatal(err)
	}
	out, err = binary.Append(out, le, pe.OptionalHeader64{
		Magic: 0x20b, Subsystem: pe.IMAGE_SUBSYSTEM_EFI_APPLICATION, NumberOfRvaAndSizes: 16,
	})
	if err != nil {
		t.Fatal(err)
	}
	return append(out, bytes.Repeat([]byte("image..."), size/8)...)
}

// The only boot loader is the unified kernel image. Firmware finds it at the place of its architecture, on a CD and on
// a stick, also if the size of the partition does not fit into the boot catalog.
func TestUKI(t *testing.T) {
	testenv.Programs(t, "sfdisk", "fsck.vfat", "isoinfo", "mcopy")
	for _, tt := range []struct {
		name    string
		machine uint16
		size    int
		file    string
		sectors string // in the boot catalog
	}{
		{"x86-64", pe.IMAGE_FILE_MACHINE_AMD64, 1 << 20, "BOOTX64.EFI", ""},
		{"arm64", pe.IMAGE_FILE_MACHINE_ARM64, 1 << 20, "BOOTAA64.EFI", ""},
		{"larger than the catalog can say", pe.IMAGE_FILE_MACHINE_AMD64, 60 << 20, "BOOTX64.EFI", "Nsect 0\n"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			program := uefiProgram(t, tt.machine, tt.size)
			o := Options{
				UKI: writeFile(t, "boot.efi", program), Out: filepath.Join(t.TempDir(), "out.iso"), Log: t.Output(),
				CacheDir: "/nonexistent", // nothing is fetched
			}
			report, err := Build(t.Context(), o)
			if err != nil {
				t.Fatal(err)
			}
			image, err := os.ReadFile(o.Out)
			if err != nil {
				t.Fatal(err)
			}
			if report.Size != int64(len(image)) || len(image)%(1<<20) != 0 {
				t.Errorf("size: got %d, reported %d, want equal and whole MiB", len(image), report.Size)
			}
			files := strings.Fields(testenv.Run(t, "isoinfo", "-R", "-f", "-i", o.Out))
			slices.Sort(files)
			want := []string{"/.disk", "/.disk/info", "/boot", "/boot/grub", "/boot/grub/efi.img"}
			if diff := cmp.Diff(want, files); diff != "" {
				t.Errorf("files (-want +got):\n%s", diff)
			}
			info := testenv.Run(t, "isoinfo", "-d", "-i", o.Out)
			if !strings.Contains(info, "Arch 239") || !strings.Contains(info, tt.sectors) {
				t.Errorf("boot catalog: got\n%s\nwant platform 239 (EFI) and %q", info, tt.sectors)
			}
			// The partition of a stick is the partition of the boot catalog.
			entry := image[mbrTable:]
			start := int(binary.LittleEndian.Uint32(entry[8:])) * sector
			end := start + int(binary.LittleEndian.Uint32(entry[12:]))*sector
			if !strings.Contains(testenv.Run(t, "sfdisk", "--dump", o.Out), "type=ef") {
				t.Error("partition table has no entry of type ef")
			}
			esp := writeFile(t, "esp", image[start:end])
			testenv.Run(t, "fsck.vfat", "-n", esp)
			if got := testenv.Run(t, "mcopy", "-i", esp, "::/EFI/BOOT/"+tt.file, "-"); got != string(program) {
				t.Errorf("%s: got %d bytes, want the %d of the program", tt.file, len(got), len(program))
			}
		})
	}
}

func TestUKIInputs(t *testing.T) {
	good := writeFile(t, "boot.efi", uefiProgram(t, pe.IMAGE_FILE_MACHINE_AMD64, 1000))
	for name, c := range map[string]struct {
		options Options
		want    string
	}{
		"kernel, too":       {Options{UKI: good, Kernel: "k", Out: "x"}, "contains kernel, initrd and command line"},
		"initrd, too":       {Options{UKI: good, Initrd: "i", Out: "x"}, "contains kernel, initrd and command line"},
		"command line, too": {Options{UKI: good, Cmdline: "a", Out: "x"}, "contains kernel, initrd and command line"},
		"no output":         {Options{UKI: good}, "output file"},
		"missing":           {Options{UKI: "/nonexistent", Out: "x"}, "/nonexistent"},
		"text":              {Options{UKI: writeFile(t, "t", []byte("text")), Out: "x"}, "is not a UEFI program"},
		"large":             {Options{UKI: testenv.SparseFile(t, 1<<30+1), Out: "x"}, "at most 1073741824"},
		"for i386": {
			Options{UKI: writeFile(t, "i", uefiProgram(t, 0x14c, 0)), Out: "x"}, "machine type 0x14c",
		},
	} {
		t.Run(name, func(t *testing.T) {
			if c.options.Out != "" {
				c.options.Out = filepath.Join(t.TempDir(), "out.iso")
			}
			_, err := Build(t.Context(), c.options)
			if err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("got %v, want an error with %q", err, c.want)
			}
			if c.options.Out == "" {
				return
			}
			if left, err := os.ReadDir(filepath.Dir(c.options.Out)); err != nil || len(left) > 0 {
				t.Errorf("got the files %v, %v, want none", left, err)
			}
		})
	}
}
