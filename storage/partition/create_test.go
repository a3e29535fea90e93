package partition

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"

	"ironroot/internal/test/testenv"
	"ironroot/storage/block"
	"ironroot/storage/sysfs"
)

// parted creates the layout with parted, as ironic-python-agent does.
func parted(t *testing.T, device string, l Layout) {
	t.Helper()
	testenv.Programs(t, "parted")
	label := map[string]string{GPT: "gpt", MBR: "msdos"}[l.Scheme]
	args := []string{"-a", "optimal", "-s", device, "--", "unit", "MiB", "mklabel", label}
	for _, p := range l.Partitions {
		kind := map[Role]string{RoleESP: "fat32", RoleSwap: "linux-swap"}[p.Role]
		args = append(args, "mkpart", "primary", kind, strconv.FormatInt(p.Start/mib, 10),
			strconv.FormatInt((p.Start+p.Size)/mib, 10))
		number := strconv.Itoa(p.Number)
		if p.Boot || p.Role == RoleESP {
			args = append(args, "set", number, "boot", "on")
		}
		if flag := map[Role]string{RoleBIOSBoot: "bios_grub", RolePReP: "prep"}[p.Role]; flag != "" {
			args = append(args, "set", number, flag, "on")
		}
	}
	testenv.Run(t, "parted", args...)
}

// small returns needs that fit on a disk of 128 MiB.
func small(scheme string, uefi, power bool) Needs {
	return Needs{
		Scheme: scheme, UEFI: uefi, POWER: power, ESP: 40 * mib, BIOSBoot: mib, Ephemeral: 20 * mib, Swap: 3 * mib,
		ConfigDrive: 1000, Root: 30 * mib,
	}
}

// The table is the same as parted's for the same needs, except for random values, according to this package and
// parted.
func TestCreateAsParted(t *testing.T) {
	for name, needs := range map[string]Needs{
		"uefi": small(GPT, true, false), "bios gpt": small(GPT, false, false), "bios msdos": small(MBR, false, false),
		"ppc gpt":   small(GPT, false, true),
		"ppc msdos": {Scheme: MBR, POWER: true, Swap: 3 * mib, Root: 30 * mib},
	} {
		for _, sector := range []int{512, 4096} {
			t.Run(fmt.Sprint(name, " ", sector), func(t *testing.T) {
				layout := plan(t, needs)
				theirs := testenv.Loop(t, testenv.SparseFile(t, 128*mib), sector)
				ours := testenv.Loop(t, testenv.SparseFile(t, 128*mib), sector)
				parted(t, theirs, layout)
				table, err := Create(t.Context(), ours, layout)
				if err != nil {
					t.Fatal(err)
				}
				drawn := func(tables ...*Table) {
					for _, table := range tables {
						table.GUID, table.DiskID = "", 0
						for i := range table.Partitions {
							table.Partitions[i].UUID = ""
						}
					}
				}
				if table.Scheme == MBR && table.DiskID == 0 {
					t.Error("the disk has no id, so that its partitions have no PARTUUID")
				}
				want := read(t, theirs)
				drawn(want, table)
				if diff := cmp.Diff(want, table); diff != "" {
					t.Errorf("-parted +created:\n%s", diff)
				}
				say := func(device string) string {
					out := testenv.Run(t, "parted", "-m", "-s", device, "unit", "B", "print")
					return strings.ReplaceAll(out, device, "disk")
				}
				if diff := cmp.Diff(say(theirs), say(ours)); diff != "" {
					t.Errorf("parted prints: -parted +created:\n%s", diff)
				}
				if layout.Scheme == GPT {
					verify(t, ours)
				} else {
					testenv.Run(t, "sfdisk", "-V", ours)
				}
				if err := Sync(t.Context(), sysfs.Root{}, ours); err != nil {
					t.Fatal(err)
				}
				last := layout.Partitions[len(layout.Partitions)-1]
				path := block.PartitionPath(sysfs.Root{}, ours, last.Number)
				out := strings.TrimSpace(testenv.Run(t, "blockdev", "--getsize64", path))
				if out != strconv.FormatInt(last.Size, 10) {
					t.Errorf("the kernel gives %s %s bytes, want %d", path, out, last.Size)
				}
				if _, err := layout.Adopt(read(t, ours)); err != nil {
					t.Errorf("the layout is not found again: %v", err)
				}
			})
		}
	}
}

// No old content of the disk is found in the new partitions, wherever they start: neither the file system or the table
// of the whole disk, nor swap areas at the start of partitions, nor other content.
func TestCreateClears(t *testing.T) {
	testenv.Programs(t, "mkfs.ext4", "wipefs", "mkswap")
	signature := testenv.SparseFile(t, mib)
	testenv.Run(t, "mkswap", signature)
	swap, err := os.ReadFile(signature)
	if err != nil {
		t.Fatal(err)
	}
	for name, prepare := range map[string]func(image string){
		"file system": func(image string) { testenv.Run(t, "mkfs.ext4", "-q", "-F", "-E", "nodiscard", image) },
		"old gpt":     func(image string) { testenv.GPT(t, image, "start=2048, size=5MiB", "start=12288") },
	} {
		for _, scheme := range []string{GPT, MBR} {
			t.Run(name+" "+scheme, func(t *testing.T) {
				image := testenv.SparseFile(t, 128*mib)
				layout := plan(t, small(scheme, false, false))
				writeAt(t, image, 0, bytes.Repeat([]byte("secret  "), 128*mib/8))
				prepare(image)
				for _, p := range layout.Partitions {
					writeAt(t, image, p.Start, swap)
				}
				device := testenv.Loop(t, image, 512)
				if _, err := Create(t.Context(), device, layout); err != nil {
					t.Fatal(err)
				}
				if err := Sync(t.Context(), sysfs.Root{}, device); err != nil {
					t.Fatal(err)
				}
				if scheme == GPT {
					verify(t, device)
				}
				cleared(t, image, layout)
				kind := map[string]string{GPT: "gpt", MBR: "dos"}[scheme]
				devices := []string{device}
				for _, p := range layout.Partitions {
					devices = append(devices, block.PartitionPath(sysfs.Root{}, device, p.Number))
				}
				arguments := append([]string{"-n", "-p", "--noheadings", "-O", "DEVICE,TYPE"}, devices...)
				own := filepath.Base(device) + ","
				for line := range strings.Lines(testenv.Run(t, "wipefs", arguments...)) {
					if signature := strings.TrimSpace(line); signature != own+kind && signature != own+"PMBR" {
						t.Errorf("there is still a signature: %s", signature)
					}
				}
			})
		}
	}
}

// cleared checks that the start of a disk and both ends of each partition are zero.
func cleared(t *testing.T, image string, layout Layout) {
	t.Helper()
	data, err := os.ReadFile(image)
	if err != nil {
		t.Fatal(err)
	}
	const tables = 34 * 512 // where a new GPT lies
	for _, r := range [][2]int64{{tables, mib}, {int64(len(data)) - mib, int64(len(data)) - tables}} {
		if !zero(data[r[0]:r[1]]) {
			t.Errorf("bytes %d to %d hold data, want zeros", r[0], r[1])
		}
	}
	for _, p := range layout.Partitions {
		content := data[p.Start:][:p.Size]
		end := min(p.Size, 8*mib)
		if !zero(content[:end]) || !zero(content[p.Size-end:]) {
			t.Errorf("partition %d: the first or the last %d bytes hold data, want zeros", p.Number, end)
		}
	}
}

func TestCreateRefuses(t *testing.T) {
	layout := plan(t, small(GPT, true, false))
	t.Run("too small", func(t *testing.T) {
		device := testenv.Loop(t, mbrImage(t, 90*mib, "label: dos\nlabel-id: 0x12345678\nstart=2048, size=2048\n"), 512)
		_, err := Create(t.Context(), device, layout)
		if err == nil || !strings.Contains(err.Error(), "space up to byte") {
			t.Errorf("got %v", err)
		}
		if table := read(t, device); table.DiskID != 0x12345678 {
			t.Errorf("the disk has the table %+v, want the old one", table)
		}
	})
	t.Run("in use", func(t *testing.T) {
		testenv.Programs(t, "mkfs.ext4")
		device := testenv.Loop(t, gptImage(t, 128*mib), 512)
		if err := Sync(t.Context(), sysfs.Root{}, device); err != nil {
			t.Fatal(err)
		}
		testenv.Run(t, "mkfs.ext4", "-q", block.PartitionPath(sysfs.Root{}, device, 1))
		dir := t.TempDir()
		testenv.Mount(t, block.PartitionPath(sysfs.Root{}, device, 1), dir, "ext4", "")
		defer unix.Unmount(dir, 0) //nolint:errcheck // a test's mount
		if _, err := Create(t.Context(), device, layout); !errors.Is(err, unix.EBUSY) {
			t.Errorf("got %v, want EBUSY", err)
		}
	})
	t.Run("cancelled", func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		if _, err := Create(ctx, filepath.Join(t.TempDir(), "none"), layout); !errors.Is(err, context.Canceled) {
			t.Errorf("got %v, want %v", err, context.Canceled)
		}
	})
}
