package bootloader

import (
	"bytes"
	"context"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"unicode/utf16"

	"github.com/foxboron/go-uefi/efi/device"
	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"

	"ironroot/internal/test/testenv"
	"ironroot/storage/efivarfs"
	"ironroot/storage/fat"
	"ironroot/storage/mounted"
	"ironroot/storage/partition"
	"ironroot/storage/sysfs"
)

const (
	mib     = 1 << 20
	espGUID = "aaaaaaaa-bbbb-cccc-dddd-eeeeeeeeeeee"
)

// Written by efibootmgr 17 with libefivar 37, without the four bytes of attributes.
var goldenOptions = map[string]struct {
	hex    string
	option loadOption
}{
	"gpt": {
		"010000006200" + "440065006200690061006e002000fc000000" +
			"04012a0001000000000800000000000000400100" + "00000000aaaaaaaabbbbccccddddeeeeeeeeeeee0202" +
			"040434005c004500460049005c00640065006200690061006e005c007300680069006d007800360034002e006500660069000000" +
			"7fff0400",
		loadOption{
			Attributes: 1, Description: "Debian ü", File: `\EFI\debian\shimx64.efi`,
			Disk: hardDriveNode{
				Number: 1, Start: 2048, Size: 81920, Format: formatGPT, SignatureType: 2,
				Signature: [16]byte{
					0xaa, 0xaa, 0xaa, 0xaa, 0xbb, 0xbb, 0xcc, 0xcc, 0xdd, 0xdd, 0xee, 0xee, 0xee, 0xee, 0xee, 0xee,
				},
			},
		},
	},
	"mbr": {
		"010000005e00690072006f006e00690063003100000004012a00" +
			"0100000000080000000000000040010000000000efbeadde000000000000" +
			"0000000000000101040430005c004500460049005c0042004f004f005400" +
			"5c0042004f004f0054005800360034002e0045004600490000007fff0400",
		loadOption{
			Attributes: 1, Description: "ironic1", File: `\EFI\BOOT\BOOTX64.EFI`,
			Disk: hardDriveNode{
				Number: 1, Start: 2048, Size: 81920, Format: formatMBR, SignatureType: 1,
				Signature: [16]byte{0xef, 0xbe, 0xad, 0xde},
			},
		},
	},
	"optional data": { // --unicode '\EFI\Linux\ü.efi '
		"0100000060006d006b006f0073006900000004012a000100000000080000000000000040010000000000aaaaaaaabbbb" +
			"ccccddddeeeeeeeeeeee0202040432005c004500460049005c006d006b006f00730069005c007300680069006d007800" +
			"360034002e0065006600690000007fff04005c004500460049005c004c0069006e00750078005c00fc002e0065006600" +
			"69002000",
		loadOption{
			Attributes: 1, Description: "mkosi", File: `\EFI\mkosi\shimx64.efi`,
			Disk: hardDriveNode{
				Number: 1, Start: 2048, Size: 81920, Format: formatGPT, SignatureType: 2,
				Signature: [16]byte{
					0xaa, 0xaa, 0xaa, 0xaa, 0xbb, 0xbb, 0xcc, 0xcc, 0xdd, 0xdd, 0xee, 0xee, 0xee, 0xee, 0xee, 0xee,
				},
			},
			OptionalData: utf16le(`\EFI\Linux\ü.efi `),
		},
	},
}

func TestLoadOptionGolden(t *testing.T) {
	for name, golden := range goldenOptions {
		t.Run(name, func(t *testing.T) {
			want, err := hex.DecodeString(golden.hex)
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(want, golden.option.encode()); diff != "" {
				t.Errorf("-efibootmgr +ours:\n%s", diff)
			}
			got, err := parseLoadOption(want)
			if err != nil {
				t.Fatal(err)
			}
			golden.option.OptionalData = nil // not parsed
			if diff := cmp.Diff(golden.option, got); diff != "" {
				t.Errorf("-want +got:\n%s", diff)
			}
			if other, err := device.ParseEFILoadOption(bytes.NewBuffer(want)); err != nil ||
				other.FilePathListLength == 0 {
				t.Errorf("go-uefi reads %+v, %v", other, err)
			}
		})
	}
}

// disk makes an image with an ESP that contains the files; tool makes the table.
func disk(t *testing.T, files map[string]string, fatBits int, prepare func(image string)) string {
	t.Helper()
	testenv.Programs(t, "sgdisk", "sfdisk")
	esp := espFile(t, files, fatBits, 40*mib)
	image := testenv.SparseFile(t, 64*mib)
	prepare(image)
	testenv.Run(t, "dd", "if="+esp, "of="+image, "bs=1M", "seek=1", "conv=notrunc,sparse", "status=none")
	return image
}

// espFile makes a FAT file system that contains the files.
func espFile(t *testing.T, files map[string]string, fatBits int, size int64) string {
	t.Helper()
	testenv.Programs(t, "mkfs.vfat", "mcopy", "mmd")
	esp := testenv.SparseFile(t, size)
	testenv.Run(t, "mkfs.vfat", "-F", fmt.Sprint(fatBits), "-i", "1234abcd", esp)
	made := map[string]bool{}
	for name, content := range files {
		dir := ""
		for _, part := range strings.Split(filepath.Dir(name), "/") {
			if dir += "/" + part; part != "." && !made[dir] {
				testenv.Run(t, "mmd", "-i", esp, "::"+dir)
				made[dir] = true
			}
		}
		source := filepath.Join(t.TempDir(), "content")
		if err := os.WriteFile(source, []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
		testenv.Run(t, "mcopy", "-i", esp, source, "::/"+name)
	}
	return esp
}

// espDisk makes an image with a GPT and ESPs of 8 MiB that contain the files. nil is one without a file system.
func espDisk(t *testing.T, esps ...[]string) string {
	t.Helper()
	testenv.Programs(t, "sfdisk")
	image := testenv.SparseFile(t, int64(8*len(esps)+2)*mib)
	script := "label: gpt\n"
	for n := range esps {
		script += fmt.Sprintf("start=%d, size=16384, type=U, uuid=%s%d\n", (8*n+1)*2048, espGUID[:35], n+1)
	}
	testenv.Run(t, "sh", "-c", `printf "$1" | PATH=$PATH:/usr/sbin sfdisk -q "$0"`, image, script)
	for n, names := range esps {
		if names == nil {
			continue
		}
		files := map[string]string{}
		for _, name := range names {
			files[name] = "x"
			if strings.HasSuffix(name, ".CSV") {
				files[name] = utf16CSV("shimx64.efi,debian")
			}
		}
		testenv.Run(t, "dd", "if="+espFile(t, files, 12, 8*mib), "of="+image, "bs=1M",
			fmt.Sprintf("seek=%d", 8*n+1), "conv=notrunc,sparse", "status=none")
	}
	return image
}

func gptTable(t *testing.T, kind string) func(string) {
	return func(image string) {
		testenv.Run(t, "sgdisk", "-n", "1:2048:+40M", "-t", "1:"+kind, "-u", "1:"+espGUID, image)
	}
}

func mbrTable(t *testing.T, kind string) func(string) {
	return func(image string) {
		testenv.Run(t, "sh", "-c", `printf 'label: dos\nlabel-id: 0xdeadbeef\nstart=2048, size=81920, type=`+kind+
			`\n' | PATH=$PATH:/usr/sbin sfdisk -q "$0"`, image)
	}
}

// utf16CSV encodes text as in shim's packages: a byte order mark and little-endian units.
func utf16CSV(text string) string {
	var b strings.Builder
	for _, unit := range append([]uint16{0xfeff}, utf16.Encode([]rune(text))...) {
		b.WriteByte(byte(unit))
		b.WriteByte(byte(unit >> 8))
	}
	return b.String()
}

// entry is a boot entry.
type entry struct {
	number        uint16
	label, loader string
}

// written returns the boot entries in a directory of variables, ordered by their numbers.
func written(t *testing.T, dir string) []entry {
	t.Helper()
	encoded, err := variables{dir: dir, log: quiet}.bootEntries()
	if err != nil {
		t.Fatal(err)
	}
	var list []entry
	for _, n := range sorted(encoded) {
		option, err := parseLoadOption(encoded[n])
		if err != nil {
			t.Fatal(err)
		}
		list = append(list, entry{n, option.Description, option.File})
	}
	return list
}

func TestFindESP(t *testing.T) {
	files := map[string]string{"EFI/BOOT/BOOTX64.EFI": "x"}
	cases := []struct {
		name    string
		prepare func(*testing.T) func(string)
		uuid    string
		want    error
	}{
		{"gpt", func(t *testing.T) func(string) { return gptTable(t, "ef00") }, "", nil},
		{"mbr", func(t *testing.T) func(string) { return mbrTable(t, "ef") }, "", nil},
		{"file system uuid", func(t *testing.T) func(string) { return gptTable(t, "8300") }, "1234-abcd", nil},
		{"partuuid", func(t *testing.T) func(string) { return gptTable(t, "8300") }, strings.ToUpper(espGUID), nil},
		{"none", func(t *testing.T) func(string) { return gptTable(t, "8300") }, "", ErrNoESP},
		{"another uuid", func(t *testing.T) func(string) { return mbrTable(t, "83") }, "4321-abcd", ErrNoESP},
		{"no table", func(*testing.T) func(string) { return func(string) {} }, "", ErrNoESP},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			image := disk(t, files, 16, c.prepare(t))
			dir := t.TempDir()
			err := InstallEFI(context.Background(), sysfs.Root{}, image, Options{ESPUUID: c.uuid, Efivars: dir})
			if !errors.Is(err, c.want) || (c.want == nil) != (err == nil) {
				t.Fatalf("got %v, want %v", err, c.want)
			}
			want := []entry{{0, "ironic1", `\EFI\BOOT\BOOTX64.EFI`}}
			if diff := cmp.Diff(want, written(t, dir), cmp.AllowUnexported(entry{})); c.want == nil && diff != "" {
				t.Errorf("-want +got:\n%s", diff)
			}
		})
	}
}

func TestCSV(t *testing.T) {
	files := map[string]string{
		"EFI/BOOT/BOOTX64.EFI":   "fallback",
		"EFI/debian/BOOTX64.CSV": utf16CSV("shimx64.efi,debian,\\EFI\\ü.efi ,This is the boot entry for debian\r\n"),
		"EFI/debian/shimx64.efi": "shim",
	}
	for _, bits := range []int{12, 16} {
		image := disk(t, files, bits, gptTable(t, "ef00"))
		dir := t.TempDir()
		if err := InstallEFI(context.Background(), sysfs.Root{}, image, Options{Efivars: dir}); err != nil {
			t.Fatal(err)
		}
		want := []entry{{0, "debian", `\EFI\debian\shimx64.efi`}}
		if diff := cmp.Diff(want, written(t, dir), cmp.AllowUnexported(entry{})); diff != "" {
			t.Errorf("FAT%d: -want +got:\n%s", bits, diff)
		}
		// fallback.c of shim and efibootmgr --unicode append the options after the end of the device path.
		end := "\x7f\xff\x04\x00" + utf16CSV(`\EFI\ü.efi `)[2:]
		option, err := os.ReadFile(filepath.Join(dir, "Boot0000-"+efivarfs.GlobalGUID))
		if err != nil || !strings.HasSuffix(string(option), end) {
			t.Errorf("FAT%d: got %q, %v, want the end %q", bits, option, err, end)
		}
	}
}

// The partition of the ESP can be given by its number, also if it has another type, and labels a suffix.
func TestInstallSuffix(t *testing.T) {
	image := disk(t, map[string]string{"EFI/BOOT/BOOTX64.EFI": "x"}, 16, gptTable(t, "8300"))
	dir := t.TempDir()
	var want []entry
	for n := range 2 { // the second does not replace the entry of the first
		suffix := fmt.Sprintf(" (RAID, part%d)", n)
		err := InstallEFI(t.Context(), sysfs.Root{}, image, Options{ESP: 1, Suffix: suffix, Efivars: dir})
		if err != nil {
			t.Fatal(err)
		}
		want = append(want, entry{uint16(n), "ironic1" + suffix, `\EFI\BOOT\BOOTX64.EFI`})
	}
	if diff := cmp.Diff(want, written(t, dir), cmp.AllowUnexported(entry{})); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
	if err := InstallEFI(t.Context(), sysfs.Root{}, image, Options{ESP: 2, Efivars: dir}); !errors.Is(err, ErrNoESP) {
		t.Errorf("partition 2: got %v, want %v", err, ErrNoESP)
	}
}

// All ESPs of a disk are searched: for a CSV file and the names in loaderNames, and then for the preferred one of other
// loaders.
//
// Parity: M3 (other loaders)
func TestOtherLoaders(t *testing.T) {
	const def, csv, shim = "EFI/BOOT/BOOTX64.EFI", "EFI/debian/BOOTX64.CSV", "EFI/debian/shimx64.efi"
	for _, tt := range []struct {
		name string
		esps [][]string
		esp  int
		want string // loader that gets an entry
	}{
		{
			"Windows",
			[][]string{{"EFI/Microsoft/Boot/bootmgfw.efi", "EFI/Microsoft/Boot/memtest.efi"}},
			1,
			`\EFI\Microsoft\Boot\bootmgfw.efi`,
		},
		{
			"shim",
			[][]string{{"EFI/debian/grubx64.efi", "EFI/debian/mmx64.efi", shim}},
			1,
			`\EFI\debian\shimx64.efi`,
		},
		{
			"shim of SUSE",
			[][]string{{"EFI/suse/shim.efi", "EFI/suse/MokManager.efi", "EFI/suse/grub.efi"}},
			1,
			`\EFI\suse\shim.efi`,
		},
		{"GRUB", [][]string{{"EFI/debian/grubx64.efi", "EFI/debian/fbx64.efi"}}, 1, `\EFI\debian\grubx64.efi`},
		{
			"systemd-boot",
			[][]string{{"EFI/Linux/a.efi", "EFI/systemd/systemd-bootx64.efi"}},
			1,
			`\EFI\systemd\systemd-bootx64.efi`,
		},
		{
			"another architecture",
			[][]string{{"EFI/fedora/shimaa64.efi", "EFI/fedora/grubx64.efi"}},
			1,
			`\EFI\fedora\grubx64.efi`,
		},
		{
			"unified kernel images",
			[][]string{{"EFI/Linux/k-6.10.0.efi", "EFI/Linux/k-6.9.1.efi", "EFI/Linux/z.txt"}},
			1,
			`\EFI\Linux\k-6.10.0.efi`,
		},
		{"in lower case", [][]string{{"efi/linux/linux.efi"}}, 1, `\efi\linux\linux.efi`},
		{
			"Linux and Windows",
			[][]string{{"EFI/Linux/a.efi", "EFI/Microsoft/Boot/bootmgfw.efi"}},
			1,
			`\EFI\Linux\a.efi`,
		},
		{"two vendors", [][]string{{shim, "EFI/centos/shimx64.efi"}}, 1, `\EFI\centos\shimx64.efi`},
		{"default loader", [][]string{{def, shim, "EFI/Linux/a.efi"}}, 1, `\EFI\BOOT\BOOTX64.EFI`},
		{"CSV", [][]string{{def, csv, shim}}, 1, `\EFI\debian\shimx64.efi`},
		{"second ESP", [][]string{{"readme.txt"}, {def}}, 2, `\EFI\BOOT\BOOTX64.EFI`},
		{"second ESP with a CSV", [][]string{{}, {csv, shim}}, 2, `\EFI\debian\shimx64.efi`},
		{"second of three", [][]string{{"mmx64.efi"}, {shim}, {shim}}, 2, `\EFI\debian\shimx64.efi`},
		{
			"default loader after Windows",
			[][]string{{"EFI/Microsoft/Boot/bootmgfw.efi"}, {def}},
			2,
			`\EFI\BOOT\BOOTX64.EFI`,
		},
		{"default loader before a CSV", [][]string{{def}, {csv, shim}}, 1, `\EFI\BOOT\BOOTX64.EFI`},
		{"no file system", [][]string{nil, {shim}}, 2, `\EFI\debian\shimx64.efi`},
		{"CSV of a missing loader", [][]string{{csv}, {shim}}, 2, `\EFI\debian\shimx64.efi`},
	} {
		t.Run(tt.name, func(t *testing.T) {
			dir, image := t.TempDir(), espDisk(t, tt.esps...)
			if err := InstallEFI(t.Context(), sysfs.Root{}, image, Options{Efivars: dir}); err != nil {
				t.Fatal(err)
			}
			label := "ironic1"
			if slices.Contains(tt.esps[tt.esp-1], csv) {
				label = "debian"
			}
			want := []entry{{0, label, tt.want}}
			if diff := cmp.Diff(want, written(t, dir), cmp.AllowUnexported(entry{})); diff != "" {
				t.Errorf("-want +got:\n%s", diff)
			}
			part := fmt.Sprintf("HD(%d,GPT,%s%d,", tt.esp, espGUID[:35], tt.esp)
			if out := efibootmgr(t, dir); !strings.Contains(out, part) {
				t.Errorf("efibootmgr does not print %q but\n%s", part, out)
			}
			if esp, err := FindESP(t.Context(), image, ""); err != nil || esp.Number != tt.esp {
				t.Errorf("FindESP: got partition %d and %v, want %d", esp.Number, err, tt.esp)
			}
		})
	}
}

// If no ESP has a loader, the error says what each of them has.
func TestNoLoaderOnAnyESP(t *testing.T) {
	image := espDisk(t, []string{"EFI/tools/memtest.efi", "readme.txt"}, nil, []string{})
	err := InstallEFI(t.Context(), sysfs.Root{}, image, Options{Efivars: t.TempDir()})
	if !errors.Is(err, ErrNoLoader) || !errors.Is(err, fat.ErrNoFAT) {
		t.Errorf("got %v, want %v and %v", err, ErrNoLoader, fat.ErrNoFAT)
	}
	for _, text := range []string{
		"partition 1", `none of 4 files is a known loader, found ["\\EFI\\tools\\memtest.efi"]`, "partition 2",
		"partition 3", "none of 0 files is a known loader, none is a program",
	} {
		if !strings.Contains(fmt.Sprint(err), text) {
			t.Errorf("got %v, want %q in it", err, text)
		}
	}
	if esp, err := FindESP(t.Context(), image, ""); err != nil || esp.Number != 1 {
		t.Errorf("FindESP: got partition %d and %v, want the first", esp.Number, err)
	}
	second := espDisk(t, []string{"EFI/debian/shimx64.efi"}, []string{"EFI/BOOT/BOOTX64.EFI"})
	if loader, err := Fallback(t.Context(), second, ""); err != nil || loader != `\EFI\BOOT\BOOTX64.EFI` {
		t.Errorf("Fallback: got %q and %v, want that of the second", loader, err)
	}
}

// An ESP that the kernel cannot mount on the disk, because its sectors are smaller, is an error with both values, or is
// skipped if another ESP has a loader.
//
// Parity: M1 (sectors)
func TestESPOfSmallSectors(t *testing.T) {
	testenv.Programs(t, "sfdisk", "mkfs.vfat", "mmd", "mcopy")
	for _, tt := range []struct {
		disk int
		esps []int // sectors of the file systems in bytes
		want int   // partition of the entry, 0 for an error
	}{
		{512, []int{512}, 1},
		{512, []int{4096}, 1},
		{4096, []int{4096}, 1},
		{4096, []int{512}, 0},
		{4096, []int{2048}, 0},
		{4096, []int{512, 4096}, 2},
	} {
		t.Run(fmt.Sprint(tt.disk, tt.esps), func(t *testing.T) {
			device := testenv.Loop(t, testenv.SparseFile(t, 64*mib), tt.disk)
			script := "label: gpt\n"
			for range tt.esps {
				script += "size=24M, type=U\n"
			}
			testenv.Run(t, "sh", "-c", `printf "$1" | sfdisk -q "$0"`, device, script)
			if err := partition.Sync(t.Context(), sysfs.Root{}, device); err != nil {
				t.Fatal(err)
			}
			for n, sector := range tt.esps {
				esp := testenv.SparseFile(t, 24*mib)
				testenv.Run(t, "mkfs.vfat", "-S", fmt.Sprint(sector), esp)
				loader := filepath.Join(t.TempDir(), "loader")
				if err := os.WriteFile(loader, []byte("MZ"), 0o600); err != nil {
					t.Fatal(err)
				}
				testenv.Run(t, "mmd", "-i", esp, "::EFI", "::EFI/BOOT")
				testenv.Run(t, "mcopy", "-i", esp, loader, "::EFI/BOOT/BOOTX64.EFI")
				testenv.Run(t, "dd", "if="+esp, "of="+device, "bs=1M", fmt.Sprintf("seek=%d", 1+24*n), "conv=fsync",
					"status=none")
				fs, err := mounted.Open(t.Context(), fmt.Sprintf("%sp%d", device, n+1), false)
				if err == nil {
					err = fs.Close()
				}
				if !errors.Is(err, unix.ENODEV) && (err == nil) != (sector >= tt.disk) { // some kernels have no FAT
					t.Fatalf("mount sectors of %d bytes on a disk of %d: %v", sector, tt.disk, err)
				}
			}
			dir := t.TempDir()
			err := InstallEFI(t.Context(), sysfs.Root{}, device, Options{Efivars: dir})
			if tt.want == 0 {
				want := fmt.Sprintf("got sectors of %d bytes, want at least the disk's %d", tt.esps[0], tt.disk)
				if !errors.Is(err, ErrSectorSize) || !strings.Contains(err.Error(), want) ||
					!strings.Contains(err.Error(), device) || len(written(t, dir)) > 0 {
					t.Errorf("got %v, want %s", err, want)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			if out := efibootmgr(t, dir); !strings.Contains(out, fmt.Sprintf("HD(%d,GPT,", tt.want)) {
				t.Errorf("efibootmgr does not print partition %d but\n%s", tt.want, out)
			}
		})
	}
}

// Loaders that only another architecture can start are not used.
func TestArchitectures(t *testing.T) {
	for goarch, want := range map[string][2]string{"amd64": {"x64", "aa64"}, "arm64": {"aa64", "x64"}} {
		names := namesFor(goarch)
		for _, kind := range []string{"shim", "systemd-boot", "grub"} {
			if own, other := kind+want[0]+".efi", kind+want[1]+".efi"; !slices.Contains(names, own) ||
				slices.Contains(names, other) {
				t.Errorf("%s: got %q, want %s and not %s", goarch, names, own, other)
			}
		}
	}
}

func TestCSVWithoutItsLoader(t *testing.T) {
	files := map[string]string{
		"EFI/BOOT/BOOTX64.EFI":  "fallback",
		"EFI/BOOT/BOOTX64.CSV":  utf16CSV("gone.efi,gone"),
		"EFI/other/BOOTX64.CSV": "no UTF-16 at all",
	}
	image := disk(t, files, 32, gptTable(t, "ef00"))
	var log testenv.Log
	dir := t.TempDir()
	err := InstallEFI(context.Background(), sysfs.Root{}, image, Options{
		Efivars: dir, Log: slog.New(slog.NewTextHandler(&log, nil)),
	})
	if err != nil {
		t.Fatal(err)
	}
	want := []entry{{0, "ironic1", `\EFI\BOOT\BOOTX64.EFI`}}
	if diff := cmp.Diff(want, written(t, dir), cmp.AllowUnexported(entry{})); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
	if text := `msg="UEFI boot entry written"`; strings.Count(log.String(), text) != 1 ||
		!strings.Contains(log.String(), "entry=Boot0000 label=ironic1") {
		t.Errorf("got the log\n%s\nwant one %s", log.String(), text)
	}
}

// efibootmgr returns what efibootmgr prints for a directory of variables, which it reads instead of the machine's.
func efibootmgr(t *testing.T, dir string) string {
	t.Helper()
	testenv.Programs(t, "efibootmgr")
	return testenv.Run(t, "env", "EFIVARFS_PATH="+dir+"/", "/bin/efibootmgr", "-v")
}

func TestInstallTwice(t *testing.T) {
	files := map[string]string{
		"EFI/BOOT/BOOTIA32.EFI": "x", "EFI/BOOT/bootx64.efi": "y", "EFI/BOOT/mmx64.efi": "z",
		"EFI/a long directory name/BOOTAA64.EFI": "w",
	}
	image := disk(t, files, 32, gptTable(t, "ef00"))
	dir := t.TempDir()
	vars := variables{dir: dir, log: quiet}
	network := loadOption{Attributes: 1, Description: "PXE", File: `\pxe`}
	if err := vars.write(bootName(0), network.encode()); err != nil {
		t.Fatal(err)
	}
	if err := vars.write("BootOrder", []byte{0, 0, 7, 0}); err != nil { // Boot0007 does not exist: it stays
		t.Fatal(err)
	}
	want := []entry{
		{0, "PXE", `\pxe`},
		{1, "ironic1", `\EFI\BOOT\BOOTIA32.EFI`},
		{2, "ironic2", `\EFI\BOOT\bootx64.efi`},
		{3, "ironic3", `\EFI\a long directory name\BOOTAA64.EFI`},
	}
	for round := range 2 { // the second replaces the entries of the first, whose numbers are free then
		if err := InstallEFI(context.Background(), sysfs.Root{}, image, Options{Efivars: dir}); err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(want, written(t, dir), cmp.AllowUnexported(entry{})); diff != "" {
			t.Errorf("round %d: -want +got:\n%s", round, diff)
		}
	}
	out := efibootmgr(t, dir)
	for _, line := range []string{
		"BootOrder: 0003,0002,0001,0000,0007",
		`Boot0002* ironic2	HD(1,GPT,` + espGUID + `,0x800,0x14000)/File(\EFI\BOOT\bootx64.efi)`,
		`Boot0003* ironic3	HD(1,GPT,` + espGUID + `,0x800,0x14000)/File(\EFI\a long directory name\BOOTAA64.EFI)`,
	} {
		if !strings.Contains(out, line) {
			t.Errorf("efibootmgr does not print %q but\n%s", line, out)
		}
	}
	if n := strings.Count(out, "ironic"); n != 3 {
		t.Errorf("efibootmgr prints %d of our entries, want 3:\n%s", n, out)
	}
}

// A variable that cannot be read is left alone, and its number is not used.
func TestInstallBesideUnreadableEntry(t *testing.T) {
	vars := variables{dir: t.TempDir(), log: quiet}
	broken := vars.path(bootName(0))
	if err := os.WriteFile(broken, []byte{7, 0}, 0o600); err != nil { // not even its attributes are whole
		t.Fatal(err)
	}
	number, err := vars.install(loadOption{
		Attributes: loadOptionActive, Description: "ironic1", File: `\x.efi`,
	})
	if err != nil || number != 1 {
		t.Errorf("got entry %d and error %v, want entry 1", number, err)
	}
	if data, err := os.ReadFile(broken); err != nil || len(data) != 2 {
		t.Errorf("the unreadable entry was changed: %x, %v", data, err)
	}
}

func TestNoLoader(t *testing.T) {
	image := disk(t, map[string]string{"EFI/BOOT/readme.txt": "x"}, 16, gptTable(t, "ef00"))
	dir := t.TempDir()
	err := InstallEFI(context.Background(), sysfs.Root{}, image, Options{Efivars: dir})
	if !errors.Is(err, ErrNoLoader) {
		t.Errorf("got %v, want ErrNoLoader", err)
	}
	if entries, _ := os.ReadDir(dir); len(entries) != 0 {
		t.Errorf("variables were written: %v", entries)
	}
	for name, csv := range map[string]string{"empty": "", "ASCII": "shimx64.efi,Debian", "label": utf16CSV("Debian")} {
		image := disk(t, map[string]string{"EFI/debian/shimx64.efi": "x", "EFI/debian/BOOTX64.CSV": csv}, 16,
			gptTable(t, "ef00"))
		err := InstallEFI(t.Context(), sysfs.Root{}, image, Options{Efivars: dir})
		if err == nil || errors.Is(err, ErrNoLoader) || !strings.Contains(err.Error(), `\EFI\debian\BOOTX64.CSV`) {
			t.Errorf("%s: got %v, want an error of the CSV file", name, err)
		}
	}
}

func TestFirmwareRefuses(t *testing.T) {
	image := disk(t, map[string]string{"EFI/BOOT/BOOTX64.EFI": "x"}, 16, gptTable(t, "ef00"))
	dir := t.TempDir()
	// A variable that is a directory can be neither opened for writing nor read.
	if err := os.Mkdir(variables{dir: dir}.path("BootOrder"), 0o755); err != nil {
		t.Fatal(err)
	}
	err := InstallEFI(context.Background(), sysfs.Root{}, image, Options{Efivars: dir})
	if !errors.Is(err, ErrFirmware) || !strings.Contains(err.Error(), "BootOrder") ||
		!strings.Contains(err.Error(), `may still start \EFI\BOOT\BOOTX64.EFI`) {
		t.Errorf("got %v, want ErrFirmware naming BootOrder and the loader that needs no entry", err)
	}
}

// Without efivarfs no entry can be written or removed, which is an error. It names the loader that firmware may start
// nevertheless.
func TestNoVariables(t *testing.T) {
	for name, tt := range map[string]struct {
		files    map[string]string
		fallback bool
	}{
		"fallback": {map[string]string{"EFI/BOOT/BOOTX64.EFI": "x"}, true},
		"fallback behind the directory of a CSV file": {map[string]string{
			"EFI/alma/BOOTX64.CSV": utf16CSV("shimx64.efi,Alma"), "EFI/alma/shimx64.efi": "x",
			"EFI/boot/bootx64.efi": "x",
		}, true},
		"none": {map[string]string{"EFI/debian/GRUBAA64.EFI": "x", "BOOTX64.EFI": "x"}, false},
	} {
		image := disk(t, tt.files, 16, gptTable(t, "ef00"))
		for _, dir := range []string{"/sys/kernel", filepath.Join(t.TempDir(), "missing")} { // sysfs, and none
			err := InstallEFI(t.Context(), sysfs.Root{}, image, Options{Efivars: dir})
			if !errors.Is(err, ErrNoVariables) || !errors.Is(err, efivarfs.ErrNotMounted) ||
				strings.Contains(strings.ToLower(err.Error()), `may still start \efi\boot\bootx64.efi`) != tt.fallback {
				t.Errorf("%s: %s: got %v, want %v, fallback %t", name, dir, err, ErrNoVariables, tt.fallback)
			}
		}
		loader, err := Fallback(t.Context(), image, "")
		if (loader != "") != tt.fallback || errors.Is(err, ErrNoLoader) == tt.fallback {
			t.Errorf("%s: got %q and %v, want a loader %t", name, loader, err, tt.fallback)
		}
	}
	sys := sysfs.Root{Path: t.TempDir()}
	if err := os.MkdirAll(sys.Sys("firmware/efi"), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink("/sys/kernel", sys.Sys("firmware/efi/efivars")); err != nil {
		t.Fatal(err)
	}
	if err := RemoveEntries(t.Context(), sys, nil, quiet); !errors.Is(err, efivarfs.ErrNotMounted) {
		t.Errorf("remove: got %v, want %v", err, efivarfs.ErrNotMounted)
	}
}

// A kernel that does not know that the machine was booted by UEFI is recognized by what the boot loader has left.
func TestCheckKernel(t *testing.T) {
	params := func(signature string) string {
		return strings.Repeat("\x00", 0x1c0) + signature + strings.Repeat("\x00", 99)
	}
	for name, tt := range map[string]struct {
		data string
		uefi bool
		want error
	}{
		"BIOS":                {data: params("\x00\x00\x00\x00")},
		"UEFI":                {data: params("EL64"), uefi: true},
		"UEFI, not supported": {data: params("EL64"), want: ErrNoVariables},
		"32 bits":             {data: params("EL32"), want: ErrNoVariables},
		"short":               {data: "EL64"},
		"no parameters":       {},
	} {
		sys := sysfs.Root{Path: t.TempDir()}
		if tt.data != "" {
			write(t, sys.Sys("kernel"), "boot_params/data", tt.data)
		}
		if tt.uefi {
			write(t, sys.Sys("firmware"), "efi/fw_vendor", "")
		}
		if err := CheckKernel(sys); !errors.Is(err, tt.want) {
			t.Errorf("%s: got %v, want %v", name, err, tt.want)
		}
	}
}

// Firmware that accepts a variable without storing it is an error.
func TestFirmwareForgets(t *testing.T) {
	vars := variables{dir: t.TempDir(), log: quiet}
	if err := os.Symlink(os.DevNull, vars.path("Boot0000")); err != nil {
		t.Fatal(err)
	}
	err := vars.write("Boot0000", []byte{1, 2, 3})
	if err == nil || !strings.Contains(err.Error(), "read variable Boot0000 back") {
		t.Errorf("got %v, want an error that the variable could not be read back", err)
	}
}

// If firmware changes BootOrder and keeps the new entry, the log has a warning with both values.
func TestFirmwareChangesBootOrder(t *testing.T) {
	for _, tt := range []struct {
		name    string
		made    []uint16 // of 0001,0000,0007
		warning string
		err     string
	}{
		{name: "kept", made: []uint16{1, 0, 7}},
		{
			name: "an entry that does not exist dropped", made: []uint16{1, 0},
			warning: "got=0001,0000 want=0001,0000,0007",
		},
		{name: "sorted", made: []uint16{0, 1, 7}, warning: "got=0000,0001,0007 want=0001,0000,0007"},
		{
			name: "an entry of its own added", made: []uint16{3, 1, 0, 7},
			warning: "got=0003,0001,0000,0007 want=0001,0000,0007",
		},
		{
			name: "the new entry dropped", made: []uint16{0, 7}, warning: "got=0000,0007 want=0001,0000,0007",
			err: "got 0000,0007, want 0001,0000,0007, which starts with the new entry",
		},
		{name: "empty", warning: `got="" want=0001,0000,0007`, err: "got nothing, want 0001,0000,0007"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			var log bytes.Buffer
			vars := variables{dir: t.TempDir(), log: slog.New(slog.NewTextHandler(&log, nil))}
			if err := vars.write(bootName(0), option("PXE", nil)); err != nil {
				t.Fatal(err)
			}
			if _, err := vars.writeOrder([]uint16{0, 7}); err != nil || log.Len() > 0 {
				t.Fatalf("%v, log %s", err, &log)
			}
			vars.written = func(name string) {
				if name == "BootOrder" {
					content := []byte{attributes, 0, 0, 0}
					for _, n := range tt.made {
						content = binary.LittleEndian.AppendUint16(content, n)
					}
					if err := os.WriteFile(vars.path(name), content, 0o600); err != nil {
						t.Error(err)
					}
				}
			}
			number, err := vars.install(loadOption{
				Attributes: loadOptionActive, Description: "ironic1", File: `\x.efi`,
			})
			if number != 1 || (err != nil) != (tt.err != "") || err != nil && !strings.Contains(err.Error(), tt.err) {
				t.Errorf("got entry %d, error %v, want entry 1, error %q", number, err, tt.err)
			}
			if got := log.String(); (got != "") != (tt.warning != "") || !strings.Contains(got, tt.warning) {
				t.Errorf("got log %q, want a warning with %q", got, tt.warning)
			}
		})
	}
}

func TestParseCSV(t *testing.T) {
	bigEndian := []byte("\xfe\xff\x00a\x00.\x00e\x00f\x00i\x00,\x00L")
	cases := []struct {
		name, data, file, label, options string
		ok                               bool
	}{
		{"four fields", utf16CSV("shim.efi,Fedora Linux,,text"), "shim.efi", "Fedora Linux", "", true},
		{"no byte order mark", utf16CSV("shim.efi,Fedora")[2:], "shim.efi", "Fedora", "", true},
		{"big-endian", string(bigEndian), "a.efi", "L", "", true},
		{"first of two lines", utf16CSV("a.efi,A\nb.efi,B\n"), "a.efi", "A", "", true},
		{"first of two lines, carriage returns", utf16CSV("a.efi,A,o\rb.efi,B\r"), "a.efi", "A", "o", true},
		{"options", utf16CSV("a.efi,A, quiet  splash ,text, more"), "a.efi", "A", " quiet  splash ", true},
		{"options, no description", utf16CSV("a.efi,A,\\g.efi\r\n"), "a.efi", "A", `\g.efi`, true},
		{"options, null", utf16CSV("a.efi,A,o\x00p,text"), "a.efi", "A", "o", true},
		{"one field", utf16CSV("shim.efi"), "", "", "", false},
		{"leaves the directory", utf16CSV(`..\..\x.efi,L`), "", "", "", false},
		{"empty", "", "", "", "", false},
		{"control characters", utf16CSV("a.efi,L\x1b[2J"), "a.efi", "L[2J", "", true},
	}
	for _, c := range cases {
		file, label, options, err := parseCSV([]byte(c.data))
		if file != c.file || label != c.label || options != c.options || (err == nil) != c.ok {
			t.Errorf("%s: got %q, %q, %q, %v", c.name, file, label, options, err)
		}
	}
}

func TestHardDrive4K(t *testing.T) {
	table := &partition.Table{Scheme: partition.GPT, SectorSize: 4096}
	node := hardDrive(table, partition.Partition{Number: 2, UUID: espGUID, Start: mib, Size: 4 * mib})
	if node.Start != 256 || node.Size != 1024 {
		t.Errorf("got start %d, size %d sectors, want 256 and 1024", node.Start, node.Size)
	}
}

func FuzzLoadOption(f *testing.F) {
	for _, golden := range goldenOptions {
		f.Add(golden.option.encode())
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		o, err := parseLoadOption(data)
		if err != nil {
			return
		}
		again, err := parseLoadOption(o.encode())
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(o.Disk, again.Disk); diff != "" {
			t.Error(diff)
		}
	})
}

func FuzzCSV(f *testing.F) {
	f.Add([]byte(utf16CSV("shim.efi,Fedora,,text")))
	f.Fuzz(func(t *testing.T, data []byte) {
		file, label, options, err := parseCSV(data)
		if err == nil && (file == "" || strings.ContainsAny(file, `/\`) || len([]rune(label)) > maxLabel ||
			strings.ContainsAny(options, ",\r\n\x00")) {
			t.Errorf("got %q, %q, %q", file, label, options)
		}
	})
}

func FuzzFAT(f *testing.F) {
	sector := make([]byte, 4096)
	copy(sector[11:], []byte{0, 2, 1, 1, 0, 1, 16, 0, 8, 0, 0xf8, 1, 0})
	sector[510], sector[511] = 0x55, 0xaa
	f.Add(sector)
	f.Fuzz(func(_ *testing.T, data []byte) {
		if tree, err := fat.Open(bytes.NewReader(data)); err == nil {
			_, _, _ = (&searcher{tree: tree}).search()
		}
	})
}

// However many CSV files cannot be parsed, the error names one of them, and cuts what it quotes.
func TestManyInvalidCSV(t *testing.T) {
	files := map[string]string{}
	for n := range 100 {
		files[fmt.Sprintf("EFI/v%03d/BOOTX64.CSV", n)] = utf16CSV("/" + strings.Repeat("x", 3000) + "," +
			strings.Repeat("y", 900))
	}
	image := disk(t, files, 32, gptTable(t, "ef00"))
	err := InstallEFI(t.Context(), sysfs.Root{}, image, Options{Efivars: t.TempDir()})
	if err == nil || !strings.Contains(err.Error(), `parse \EFI\v000\BOOTX64.CSV`) || len(err.Error()) > 1000 {
		t.Errorf("got %v, want a short error of the first file", err)
	}
}
