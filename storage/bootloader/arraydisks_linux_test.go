//go:build linux

package bootloader

import (
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"ironroot/internal/test/testenv"
	"ironroot/storage/block"
	"ironroot/storage/md"
	"ironroot/storage/partition"
	"ironroot/storage/sysfs"
)

// onDisks returns the view of a machine on which the array md0 runs, with the second partitions of loop devices as
// members. Each table is made by sgdisk or sfdisk with the arguments.
func onDisks(t *testing.T, tables ...[]string) (sysfs.Root, []string) {
	t.Helper()
	testenv.Root(t)
	root := sysfs.Root{Path: t.TempDir()}
	for _, link := range [][2]string{{"/dev", root.Dev("")}} {
		if err := os.Symlink(link[0], strings.TrimSuffix(link[1], "/")); err != nil {
			t.Fatal(err)
		}
	}
	put := func(name, text string) {
		path := root.Sys("class/block", name)
		err := os.MkdirAll(filepath.Dir(path), 0o755)
		if err = errors.Join(err, os.WriteFile(path, []byte(text+"\n"), 0o600)); err != nil {
			t.Fatal(err)
		}
	}
	put("md0/size", "1")
	for file, text := range map[string]string{
		"level": "raid1", "metadata_version": "1.2", "array_state": "clean", "degraded": "0",
		"raid_disks": fmt.Sprint(len(tables)),
	} {
		put("md0/md/"+file, text)
	}
	var disks, members []string
	for i, table := range tables {
		image := testenv.SparseFile(t, 800*mib)
		testenv.Programs(t, table[0])
		testenv.Run(t, table[0], append(table[1:], image)...)
		disk := testenv.Loop(t, image, 512)
		if err := partition.Sync(t.Context(), sysfs.Root{}, disk); err != nil {
			t.Fatal(err)
		}
		member := disk + "p2"
		for _, path := range []string{disk, member} {
			real, err := filepath.EvalSymlinks(filepath.Join("/sys/class/block", filepath.Base(path)))
			if err != nil {
				t.Fatal(err)
			}
			if err := os.Symlink(real, root.Sys("class/block", filepath.Base(path))); err != nil {
				t.Fatal(err)
			}
		}
		put("md0/md/dev-"+filepath.Base(member)+"/slot", fmt.Sprint(i))
		put("md0/md/dev-"+filepath.Base(member)+"/state", "in_sync")
		disks, members = append(disks, disk), append(members, member)
	}
	writeMembers(t, members)
	return root, disks
}

// writeMembers writes the superblocks of a mirror.
func writeMembers(t *testing.T, members []string) {
	t.Helper()
	array := md.New{Version: "1.2", Level: "raid1", Name: "any:root"}
	for range members {
		array.Sizes = append(array.Sizes, 100*mib)
	}
	blocks, err := array.Encode(time.Unix(1700000000, 0))
	if err != nil {
		t.Fatal(err)
	}
	for i, member := range members {
		f, err := os.OpenFile(member, os.O_RDWR, 0)
		if err != nil {
			t.Fatal(err)
		}
		_, err = f.WriteAt(blocks[i][0].Data, blocks[i][0].Offset)
		if err := errors.Join(err, f.Close()); err != nil {
			t.Fatal(err)
		}
	}
}

// gptFrom returns the table of a disk whose member of 100 MiB starts at a MiB.
func gptFrom(start int, more ...string) []string {
	return append([]string{
		"sgdisk", "-n", fmt.Sprintf("2:%dM:+100M", start), "-t", "2:8300", "-c", "2:primary",
	}, more...)
}

// mbrFrom is gptFrom for an MBR.
func mbrFrom(start int) []string {
	table := fmt.Sprintf("label: dos\n2: start=%dMiB, size=100MiB, type=83\n", start)
	return []string{"sh", "-c", "printf '" + table + `' | sfdisk -q "$0"`}
}

// openArray opens the array md0.
func openArray(t *testing.T, root sysfs.Root) (*ArrayDisks, error) {
	t.Helper()
	d, err := block.Find(root, "md0")
	if err != nil {
		t.Fatal(err)
	}
	return OpenArray(t.Context(), root, d, slog.New(slog.DiscardHandler))
}

// TestAddBIOSBoot adds a partition to each disk with a GPT, once. sgdisk reads the tables.
//
// Parity: N5 (BIOS boot partitions)
func TestAddBIOSBoot(t *testing.T) {
	testenv.Programs(t, "sgdisk", "sfdisk")
	root, disks := onDisks(t, gptFrom(8), gptFrom(8, "-n", "5:1M:+1M", "-t", "5:ef02", "-c", "5:other"), mbrFrom(1))
	a, err := openArray(t, root)
	if err != nil {
		t.Fatal(err)
	}
	if fmt.Sprint(a.Disks) != fmt.Sprint(disks) || a.UUID == "" {
		t.Errorf("got %+v, want disks %s and a UUID", a, disks)
	}
	if err := a.CheckSpace(t.Context(), false); err != nil {
		t.Error(err)
	}
	for range 2 {
		if err := a.AddBIOSBoot(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	for i, want := range []string{"1 1.0MiB 2.0MiB EF02 bios-boot-part-0", "5 1.0MiB 1024.0KiB EF02 other"} {
		out := testenv.Run(t, "sgdisk", "-p", disks[i])
		testenv.Run(t, "sgdisk", "-v", disks[i])
		found := false
		for line := range strings.Lines(out) {
			f := strings.Fields(line)
			if len(f) != 7 || f[5] != "EF02" {
				continue
			}
			got := fmt.Sprintf("%s %s %s%s %s %s", f[0], startOf(f[1]), f[3], f[4], f[5], f[6])
			if found || got != want {
				t.Errorf("disk %d: sgdisk shows %q, want only %q", i, got, want)
			}
			found = true
		}
		if !found {
			t.Errorf("disk %d: sgdisk shows no BIOS boot partition:\n%s", i, out)
		}
	}
	if _, err := os.Stat(disks[0] + "p1"); err != nil {
		t.Error(err)
	}
	table, err := partition.Read(t.Context(), disks[2])
	if err != nil || len(table.Partitions) != 1 {
		t.Errorf("MBR: got %+v and %v, want it unchanged", table, err)
	}
}

// startOf converts a number of sectors to MiB.
func startOf(sectors string) string {
	var n float64
	_, _ = fmt.Sscan(sectors, &n)
	return fmt.Sprintf("%.1fMiB", n/2048)
}

// The partition of the ESP needs 550 MiB on each disk. CheckSpace names a disk without them, and writes nothing.
func TestCheckSpace(t *testing.T) {
	testenv.Programs(t, "sgdisk", "sfdisk")
	own := []string{"-n", "1:1M:+300M", "-t", "1:ef00", "-c", "1:uefi-holder-7"}
	for name, tt := range map[string]struct {
		second []string
		want   string // "" means that there is space
	}{
		"before the member":   {gptFrom(551), ""},
		"behind the member":   {gptFrom(100), ""},
		"one MiB too little":  {gptFrom(550, "-n", "3:650M:+100M"), "has no free space of 576716800 bytes"},
		"partition exists":    {gptFrom(400, own...), ""},
		"other ESP":           {gptFrom(400, "-n", "1:1M:+300M", "-t", "1:ef00"), "has no free space"},
		"other type of table": {mbrFrom(600), "got partition table mbr, want gpt"},
	} {
		t.Run(name, func(t *testing.T) {
			root, disks := onDisks(t, gptFrom(600), tt.second)
			a, err := openArray(t, root)
			if err != nil {
				t.Fatal(err)
			}
			before := testenv.Run(t, "sfdisk", "-d", disks[1])
			err = a.CheckSpace(t.Context(), true)
			if tt.want == "" && err != nil || tt.want != "" && (!errors.Is(err, ErrArray) ||
				!strings.Contains(err.Error(), disks[1]) || !strings.Contains(err.Error(), tt.want)) {
				t.Errorf("got %v, want an error with %q", err, tt.want)
			}
			if after := testenv.Run(t, "sfdisk", "-d", disks[1]); after != before {
				t.Errorf("the table was changed: got\n%s\nwant\n%s", after, before)
			}
		})
	}
}

// Only complete arrays of partitions on several disks can get boot loaders.
func TestOpenRefuses(t *testing.T) {
	testenv.Programs(t, "sgdisk")
	for name, tt := range map[string]struct {
		change func(root sysfs.Root, disks []string) error
		want   string
	}{
		"degraded": {func(root sysfs.Root, _ []string) error {
			return os.WriteFile(root.Sys("class/block/md0/md/degraded"), []byte("1\n"), 0o600)
		}, "got 1 of 2 members in use"},
		"removed": {func(root sysfs.Root, disks []string) error {
			return os.RemoveAll(root.Sys("class/block/md0/md/dev-" + filepath.Base(disks[1]) + "p2"))
		}, "got 1 of 2 members in use"},
		"stopped": {func(root sysfs.Root, _ []string) error {
			return os.RemoveAll(root.Sys("class/block/md0/md"))
		}, "array not running"},
		"whole disk": {func(root sysfs.Root, disks []string) error {
			dir := root.Sys("class/block/md0/md/dev-" + filepath.Base(disks[1]))
			return os.Rename(dir+"p2", dir)
		}, "is not a partition"},
	} {
		t.Run(name, func(t *testing.T) {
			root, disks := onDisks(t, gptFrom(600), gptFrom(600))
			if err := tt.change(root, disks); err != nil {
				t.Fatal(err)
			}
			_, err := openArray(t, root)
			if !errors.Is(err, ErrArray) || !strings.Contains(err.Error(), tt.want) ||
				!strings.Contains(err.Error(), "/dev/md0") {
				t.Errorf("got %v, want an error with %q", err, tt.want)
			}
		})
	}
}

// The content of a file system differs if a name, a byte or a directory differs.
func TestReadContent(t *testing.T) {
	testenv.Programs(t, "mkfs.vfat", "mmd", "mcopy", "mdel", "mren", "mmove", "mlabel")
	seen := map[string]string{}
	for name, commands := range map[string][]string{
		"one":       {},
		"same":      {`printf 1 | mcopy -i "$0" - ::b`, `mdel -i "$0" ::b`}, // in other clusters
		"byte":      {`printf 13 | mcopy -o -i "$0" - ::EFI/a`},
		"name":      {`mren -i "$0" ::EFI/a ::EFI/b`},
		"place":     {`mmove -i "$0" ::EFI/a ::`},
		"directory": {`mmd -i "$0" ::EFI/c`},
		"label":     {`mlabel -i "$0" ::OTHER`},
	} {
		image := testenv.SparseFile(t, 4*mib)
		testenv.Run(t, "mkfs.vfat", "-i", "1234abcd", "-n", "ESP", image)
		commands = append([]string{`mmd -i "$0" ::EFI`, `printf 12 | mcopy -i "$0" - ::EFI/a`}, commands...)
		for _, command := range commands {
			testenv.Run(t, "sh", "-ec", command, image)
		}
		f, tree, err := openFAT(t.Context(), image, partition.Partition{Size: 4 * mib})
		if err != nil {
			t.Fatal(err)
		}
		defer f.Close()
		c, err := readContent(t.Context(), tree)
		if err != nil {
			t.Fatal(err)
		}
		seen[name] = c.summary()
	}
	if seen["one"] != seen["same"] || !strings.Contains(seen["one"], `files of 2 bytes`) ||
		!strings.Contains(seen["one"], `UUID 1234-ABCD, label "ESP"`) {
		t.Errorf("got %q and %q, want the same", seen["one"], seen["same"])
	}
	for name, got := range seen {
		if name != "one" && name != "same" && got == seen["one"] {
			t.Errorf("%s: got %q as without the difference", name, got)
		}
	}
}

// Files that do not fit are an error before the mirror is written.
func TestTooLarge(t *testing.T) {
	root := sysfs.Root{Path: t.TempDir()}
	if err := os.MkdirAll(root.Sys("class/block/md9"), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(root.Sys("class/block/md9/size"), []byte("2048\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	m := &mirror{array: &ArrayDisks{sys: root}, path: "/dev/md9"}
	err := m.fill(t.Context(), content{bytes: mib + 1})
	if !errors.Is(err, ErrTooLarge) || !strings.Contains(err.Error(), "got 1048577 bytes, want at most 1048576") {
		t.Errorf("got %v, want %v", err, ErrTooLarge)
	}
}
