package bootloader

import (
	"errors"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"ironroot/internal/test/testenv"
	"ironroot/storage/mounted"
	"ironroot/storage/partition"
	"ironroot/storage/sysfs"
)

// write writes a file and creates its directories.
func write(t *testing.T, top, name, content string) {
	t.Helper()
	file := filepath.Join(top, name)
	if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(file, []byte(content), 0o644); err != nil {
		t.Fatal(err)
	}
}

// files returns every file below a directory with its content.
func files(t *testing.T, top string) map[string]string {
	t.Helper()
	found := map[string]string{}
	err := filepath.WalkDir(top, func(file string, entry os.DirEntry, err error) error {
		if err != nil || entry.IsDir() {
			return err
		}
		data, err := os.ReadFile(file)
		found[strings.TrimPrefix(file, top+"/")] = string(data)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return found
}

// The ESP is mounted once, by the first line for its directory.
func TestWithESP(t *testing.T) {
	const line = "UUID=1234-ABCD\t/boot/efi\tvfat\tumask=0077\t0\t1\n"
	for _, tt := range []struct{ name, fstab, want string }{
		{"empty", "", line},
		{"others", "UUID=6f1d / ext4 rw 0 0\n", "UUID=6f1d / ext4 rw 0 0\n" + line},
		{"no end of line", "UUID=6f1d / ext4 rw 0 0", "UUID=6f1d / ext4 rw 0 0\n" + line},
		{"there already", "# x\n" + line, "# x\n" + line},
		{
			"there in another form", " uuid=\"1234-abcd\"  /efi auto defaults",
			" uuid=\"1234-abcd\"  /efi auto defaults",
		},
		{"in a comment", "#UUID=1234-ABCD /boot/efi vfat\n", "#UUID=1234-ABCD /boot/efi vfat\n" + line},
		{"directory in a comment", " # LABEL=UEFI /boot/efi vfat\n", " # LABEL=UEFI /boot/efi vfat\n" + line},
		{"longer", "UUID=1234-ABCD-01 / ext4\n", "UUID=1234-ABCD-01 / ext4\n" + line},
		{"by its partition", "PARTUUID=1234-ABCD / ext4\n", "PARTUUID=1234-ABCD / ext4\n" + line},
		{"another directory", "LABEL=x /boot/efi2 vfat\n", "LABEL=x /boot/efi2 vfat\n" + line},
		{
			"of the image", "LABEL=root / ext4\nLABEL=UEFI\t/boot/efi\tvfat\tumask=0077,ro\t0 1\nLABEL=d /d xfs\n",
			"LABEL=root / ext4\nUUID=1234-ABCD\t/boot/efi\tvfat\tumask=0077,ro\t0 1\nLABEL=d /d xfs\n",
		},
		{"of the image, auto", "/dev/sda1 /boot/efi auto ro", "UUID=1234-ABCD /boot/efi auto ro"},
		{"of another type", "tmpfs /boot/efi tmpfs size=10m,mode=0700 0 0\n", line},
		{"a directory", "/efi /boot/efi none bind 0 0\nLABEL=d /d xfs\n", line + "LABEL=d /d xfs\n"},
		{"a directory of type auto", "/efi /boot/efi auto rbind", strings.TrimSpace(line)},
		{
			"a directory that shows it", "UUID=1234-ABCD /efi vfat defaults 0 2\n/efi /boot/efi none bind 0 0\n",
			"UUID=1234-ABCD /efi vfat defaults 0 2\n/efi /boot/efi none bind 0 0\n",
		},
		{
			"elsewhere, and another one here", "/dev/old /boot/efi vfat ro\nUUID=1234-ABCD /efi vfat\n",
			"UUID=1234-ABCD /boot/efi vfat ro\nUUID=1234-ABCD /efi vfat\n",
		},
		{"without a type", "LABEL=UEFI /boot/efi\n", line},
		{"slash at the end", "LABEL=UEFI /boot/efi/ vfat\n", "UUID=1234-ABCD /boot/efi/ vfat\n"},
		{"other forms", "\tLABEL=UEFI /boot//./efi vfat\n", "\tUUID=1234-ABCD /boot//./efi vfat\n"},
		{
			"line ends of DOS", "LABEL=UEFI\t/boot/efi\tvfat\r\nLABEL=d /d xfs\r\n",
			"UUID=1234-ABCD\t/boot/efi\tvfat\r\nLABEL=d /d xfs\r\n",
		},
		{"another type, line ends of DOS", "tmpfs /boot/efi tmpfs\r\n", strings.TrimSpace(line) + "\r\n"},
		{
			"twice", "LABEL=a /boot/efi vfat\nUUID=1234-ABCD /boot/efi vfat\n",
			"UUID=1234-ABCD /boot/efi vfat\n#UUID=1234-ABCD /boot/efi vfat\n",
		},
		{
			"there, and another one after it", line + "LABEL=UEFI /boot/efi vfat",
			line + "#LABEL=UEFI /boot/efi vfat",
		},
	} {
		got := withESP(tt.fstab, "UUID=1234-ABCD")
		if got != tt.want {
			t.Errorf("%s: got %q, want %q", tt.name, got, tt.want)
		}
		if again := withESP(got, "UUID=1234-ABCD"); again != got {
			t.Errorf("%s: the second time: got %q, want %q", tt.name, again, got)
		}
	}
}

// rootDisk makes a loop device with an ESP, whose file system has the serial 1234-ABCD, and a root made by mkfs.
func rootDisk(t *testing.T, tree string, mkfs ...string) string {
	t.Helper()
	testenv.Root(t)
	testenv.Programs(t, "sgdisk", "mkfs.vfat", mkfs[0])
	image := testenv.SparseFile(t, 400<<20)
	testenv.Run(t, "sgdisk", "-n", "1:1M:+40M", "-t", "1:ef00", "-u", "1:"+espGUID, "-n", "2:41M:0",
		"-u", "2:"+rootPart, image)
	testenv.Run(t, "mkfs.vfat", "-F", "16", "-i", "1234abcd", "--offset", "2048", image, "40960")
	root := testenv.SparseFile(t, 350<<20)
	for i, word := range mkfs {
		mkfs[i] = strings.ReplaceAll(word, "TREE", tree)
	}
	testenv.Run(t, mkfs[0], append(mkfs[1:], root)...)
	testenv.Run(t, "dd", "if="+root, "of="+image, "bs=1M", "seek=41", "conv=notrunc,sparse", "status=none")
	device := testenv.Loop(t, image, 512)
	if err := partition.Sync(t.Context(), sysfs.Root{}, device); err != nil {
		t.Fatal(err)
	}
	return device
}

func espOf(t *testing.T, device string) partition.Partition {
	t.Helper()
	table, err := partition.Read(t.Context(), device)
	if err != nil {
		t.Fatal(err)
	}
	return table.Partitions[0]
}

var quiet = slog.New(slog.DiscardHandler)

const rootPart = "6f1d3c1e-7a35-4a29-9d3a-000000000002"

// newUUID returns a unique UUID: Btrfs does not mount two file systems with the same one.
func newUUID(t *testing.T) string {
	t.Helper()
	text, err := os.ReadFile("/proc/sys/kernel/random/uuid")
	if err != nil {
		t.Fatal(err)
	}
	return strings.TrimSpace(string(text))
}

// Parity: M7 (PARTUUID)
func TestFstab(t *testing.T) {
	rootFS := newUUID(t)
	ext4 := []string{"mkfs.ext4", "-q", "-U", rootFS, "-L", "cloudroot", "-d", "TREE"}
	btrfs := []string{"mkfs.btrfs", "-q", "-U", rootFS, "--rootdir", "TREE"}
	for _, tt := range []struct {
		name, root, esp, want string
		mkfs                  []string
	}{
		{"file system", rootFS, "1234-ABCD", "UUID=1234-ABCD", btrfs},
		{"partition", strings.ToUpper(rootFS), strings.ToUpper(espGUID), "PARTUUID=" + espGUID, ext4},
		{"label, and no UUID of the ESP's", "cloudroot", "4321-4321", "UUID=1234-ABCD", ext4},
	} {
		t.Run(tt.name, func(t *testing.T) {
			tree := t.TempDir()
			before := "UUID=" + rootFS + " / auto rw 0 0\n"
			write(t, tree, "etc/fstab", before)
			device := rootDisk(t, tree, slices.Clone(tt.mkfs)...)
			for range 2 {
				// There are no loaders to copy: nothing may change.
				if kept, err := KeepEFI(t.Context(), Keep{
					Disk: device, RootUUID: tt.root, ESPUUID: tt.esp, Configure: true, Log: quiet,
				}); err != nil || kept != (Kept{}) {
					t.Fatalf("got %+v and %v, want nothing done", kept, err)
				}
			}
			esp, err := nameInFstab(device, espOf(t, device), tt.esp)
			if err != nil || esp != tt.want {
				t.Fatalf("got %q and %v, want %q", esp, err, tt.want)
			}
			for _, changes := range []bool{true, false} {
				if changed, err := changeFstab(t.Context(), device+"p2", esp); err != nil || changed != changes {
					t.Errorf("got changed %t and %v, want %t", changed, err, changes)
				}
			}
			root, err := mounted.Open(t.Context(), device+"p2", false)
			if err != nil {
				t.Fatal(err)
			}
			f, err := root.Regular("etc/fstab")
			if err != nil {
				t.Fatal(err)
			}
			got, err := io.ReadAll(f)
			if want := before + tt.want + "\t/boot/efi\tvfat\tumask=0077\t0\t1\n"; string(got) != want {
				t.Errorf("got fstab %q and %v, want %q", got, err, want)
			}
			if err := errors.Join(f.Close(), root.Close()); err != nil {
				t.Error(err)
			}
		})
	}
}

// A root in the default subvolume of Btrfs is found, as by a mount without options.
func TestSubvolume(t *testing.T) {
	testenv.Root(t)
	testenv.Programs(t, "mkfs.btrfs", "btrfs", "unshare")
	device := testenv.Loop(t, testenv.SparseFile(t, 128<<20), 512)
	testenv.Run(t, "mkfs.btrfs", "-q", "-U", newUUID(t), device)
	for _, tt := range []struct {
		does string
		want bool
	}{
		{`btrfs subvolume create "$1/@" && mkdir -p "$1/@/boot/efi/EFI"`, false},
		{`btrfs subvolume set-default "$1/@"`, true},
	} {
		testenv.Run(t, "unshare", "-m", "sh", "-ec", `mount "$0" "$1"; `+tt.does, device, t.TempDir())
		if there, err := hasAssets(t.Context(), device); err != nil || there != tt.want {
			t.Errorf("after %s: got %t and %v, want %t", tt.does, there, err, tt.want)
		}
	}
}

func TestKeepEFIFails(t *testing.T) {
	rootFS := newUUID(t)
	tree := t.TempDir()
	write(t, tree, "boot/efi/EFI/BOOT/BOOTX64.EFI", "shim")
	device := rootDisk(t, tree, "mkfs.ext4", "-q", "-U", rootFS, "-L", "cloudroot", "-d", "TREE")
	for _, tt := range []struct {
		name, disk, root, esp string
		want                  error
	}{
		{"no such root", device, "6f1d3c1e-0000-0000-0000-000000000000", "1234-ABCD", ErrNoRoot},
		{"no table", device + "p2", rootFS, "1234-ABCD", ErrNoRoot},
		{"the root is no file system that is known", device, rootPart, "1234-ABCD", mounted.ErrNoFilesystem},
	} {
		if errors.Is(tt.want, mounted.ErrNoFilesystem) {
			testenv.Run(t, "wipefs", "-qaf", device+"p2")
		}
		_, err := KeepEFI(t.Context(), Keep{Disk: tt.disk, RootUUID: tt.root, ESPUUID: tt.esp, Log: quiet})
		if !errors.Is(err, tt.want) {
			t.Errorf("%s: got %v, want %v", tt.name, err, tt.want)
		}
	}
}

// The image's GRUB writes its menu only if that is allowed.
func TestKeepEFIConfigures(t *testing.T) {
	tree, rootFS := t.TempDir(), newUUID(t)
	for _, name := range []string{"dev", "proc", "sys", "run", "tmp", "etc"} {
		if err := os.MkdirAll(filepath.Join(tree, name), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	write(t, tree, "boot/efi/EFI/BOOT/BOOTX64.EFI", "shim")
	const menu = "grub2-mkconfig"
	testenv.Run(t, "env", "CGO_ENABLED=0", "go", "build", "-o", filepath.Join(tree, "usr/sbin", menu),
		"./chroot/testdata/installer")
	device := rootDisk(t, tree, "mkfs.ext4", "-q", "-U", rootFS, "-d", "TREE")
	for _, configure := range []bool{false, true} {
		kept, err := KeepEFI(t.Context(),
			Keep{Disk: device, RootUUID: rootFS, ESPUUID: "1234-ABCD", Configure: configure, Log: quiet})
		// This machine's kernel may have no FAT; the ESP comes last.
		if err == nil && kept.Files != 1 || err != nil && !errors.Is(err, unix.ENODEV) {
			t.Errorf("got %+v and %v, want one file", kept, err)
		}
		if got := report(t, device+"p2", menu); strings.Contains(got, "argument -o,") != configure {
			t.Errorf("allowed %t: %s reports %q", configure, menu, got)
		}
	}
}

func FuzzFstab(f *testing.F) {
	f.Add("UUID=6f1d / ext4 rw 0 0\n# x\n\"UUID=1234-abcd\" /boot/efi vfat")
	f.Fuzz(func(t *testing.T, text string) {
		got := withESP(text, "UUID=1234-ABCD")
		if again := withESP(got, "UUID=1234-ABCD"); again != got {
			t.Errorf("the second time: got %q, want %q", again, got)
		}
		others := func(text string) (lines []string) {
			for line := range strings.Lines(text) {
				if fields := strings.Fields(line); !strings.Contains(unescape.Replace(line), "efi") && len(fields) > 0 {
					lines = append(lines, strings.TrimSuffix(line, "\n"))
				}
			}
			return lines
		}
		if want, got := others(text), others(got); !slices.Equal(got, want) {
			t.Errorf("got the other lines %q, want %q", got, want)
		}
	})
}
