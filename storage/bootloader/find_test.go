package bootloader

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"ironroot/internal/test/testenv"
	"ironroot/storage/block"
	"ironroot/storage/bootloader/chroot"
	"ironroot/storage/partition"
	"ironroot/storage/sysfs"
)

func TestFATMounts(t *testing.T) {
	const fstab = `# /etc/fstab
UUID=6f1d-0000 / ext4 defaults 0 1
UUID=1234-ABCD /boot/efi vfat umask=0077 0 1
 LABEL=two\040words	/mnt/with\040space	vfat
#UUID=1 /a vfat
UUID=2 /b vfat ro,noauto 0 0
UUID=3 relative vfat defaults
UUID=4 /c exfat
UUID=5 none swap sw
/dev/sda1 /d vfat noautomount
short vfat`
	want := []fstabMount{{"UUID=1234-ABCD", "/boot/efi"}, {"LABEL=two words", "/mnt/with space"}, {"/dev/sda1", "/d"}}
	if diff := cmp.Diff(want, fatMounts(fstab), cmp.AllowUnexported(fstabMount{})); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
}

func FuzzFATMounts(f *testing.F) {
	f.Add("UUID=1234-ABCD /boot/efi vfat umask=0077 0 1\nLABEL=\\040 /\\134 vfat")
	f.Fuzz(func(t *testing.T, text string) {
		for _, m := range fatMounts(text) {
			if m.source == "" || !filepath.IsAbs(m.at) {
				t.Errorf("got source %q at %q", m.source, m.at)
			}
		}
	})
}

func TestFindMount(t *testing.T) {
	rootFS := newUUID(t)
	device := rootDisk(t, t.TempDir(), "mkfs.ext4", "-q", "-U", rootFS, "-L", "the root", "-d", "TREE")
	table, err := partition.Read(t.Context(), device)
	if err != nil {
		t.Fatal(err)
	}
	for source, want := range map[string]string{
		"UUID=1234-ABCD":                                    "p1",
		"uuid=1234-ABCD":                                    "",
		`UUID="1234-abcd"`:                                  "p1",
		"/dev/disk/by-uuid/1234-ABCD":                       "p1",
		`/dev/disk/by-label/the\x20root`:                    "p2",
		"/dev/disk/by-label/the root":                       "",
		"LABEL=the root":                                    "p2",
		"LABEL=THE ROOT":                                    "",
		"PARTUUID=" + table.Partitions[1].UUID:              "p2",
		"/dev/disk/by-partuuid/" + table.Partitions[0].UUID: "p1",
		"UUID=": "", "LABEL=": "", "PARTLABEL=": "", "": "", "/dev/sda": "",
		device + "p2": "p2",
	} {
		got, err := findMount(t.Context(), sysfs.Root{}, device, table, source)
		if want != "" {
			want = device + want
		}
		if got != want || (err != nil) != (want == "") {
			t.Errorf("%q: got %q, %v, want %q", source, got, err, want)
		}
	}
}

// If the root is not on a partition of the disk, all disks are searched: first for its file system, then for its
// partition.
func TestFindAnywhere(t *testing.T) {
	rootFS := newUUID(t)
	disk := rootDisk(t, t.TempDir(), "mkfs.ext4", "-q", "-U", rootFS, "-d", "TREE")
	table, err := partition.Read(t.Context(), disk)
	if err != nil {
		t.Fatal(err)
	}
	whole := newUUID(t)
	image := testenv.SparseFile(t, 8<<20)
	testenv.Run(t, "mkfs.ext4", "-q", "-U", whole, image)
	first, second := testenv.Loop(t, image, 512), testenv.Loop(t, image, 512)
	disks := func(paths ...string) (list []block.Device) {
		for _, path := range paths {
			list = append(list, block.Device{Path: path})
		}
		return list
	}
	for _, tt := range []struct {
		name  string
		disks []block.Device
		disk  string
		uuid  string
		want  string
		err   error
	}{
		{name: "whole disk", disks: disks(disk, first), disk: disk, uuid: strings.ToUpper(whole), want: first},
		{name: "the disk itself", disks: disks(first), disk: first, uuid: whole, want: first},
		{name: "twice", disks: disks(disk, first, second), disk: disk, uuid: whole, err: ErrNoRoot},
		{name: "partition's file system", disks: disks(disk, first), disk: first, uuid: rootFS, want: disk + "p2"},
		{name: "partition", disks: disks(disk, first), disk: first, uuid: table.Partitions[1].UUID, want: disk + "p2"},
		{name: "partition of the disk", disks: disks(disk, first), disk: disk, uuid: rootFS},
		{name: "unreadable", disks: disks("/dev/nonexistent", first), disk: disk, uuid: whole, want: first},
		{name: "none", disks: disks(disk, first), disk: disk, uuid: newUUID(t)},
	} {
		got, err := findAnywhere(t.Context(), sysfs.Root{}, tt.disks, tt.disk, tt.uuid)
		if got != tt.want || !errors.Is(err, tt.err) {
			t.Errorf("%s: got %q, %v, want %q, %v", tt.name, got, err, tt.want, tt.err)
		}
		if err != nil && (!strings.Contains(err.Error(), first) || !strings.Contains(err.Error(), second)) {
			t.Errorf("%s: got %v, want both devices named", tt.name, err)
		}
	}
}

// The root is searched first on the deployed disk, and then on the others that are listed.
//
// Parity: M6 (findfs)
func TestFindRoot(t *testing.T) {
	rootFS, elsewhere := newUUID(t), newUUID(t)
	disk := rootDisk(t, t.TempDir(), "mkfs.ext4", "-q", "-U", rootFS, "-d", "TREE")
	table, err := partition.Read(t.Context(), disk)
	if err != nil {
		t.Fatal(err)
	}
	other := testenv.SparseFile(t, 8<<20)
	testenv.Run(t, "mkfs.ext4", "-q", "-U", elsewhere, other)
	sys := sysfs.Root{Path: t.TempDir()}
	name := ".." + strings.ReplaceAll(other, "/", "!") // a disk that is not below /dev
	for _, dir := range []string{"block", "class/block"} {
		write(t, sys.Sys(dir), name+"/size", "16384\n")
	}
	for uuid, want := range map[string]string{rootFS: disk + "p2", elsewhere: "/dev/.." + other, newUUID(t): ""} {
		got, err := findRoot(t.Context(), sys, block.MachineDisks{System: sys}, disk, table, uuid)
		if got != want || errors.Is(err, ErrNoRoot) != (want == "") || want != "" && err != nil {
			t.Errorf("%s: got %q and %v, want %q", uuid, got, err, want)
		}
	}
	refused := errors.New("no list of disks")
	for name, tt := range map[string]struct {
		list block.Lister
		want error
	}{
		"none":       {nil, ErrNoRoot},
		"not listed": {listed{}, ErrNoRoot},
		"unreadable": {listed{block.ErrUnreadable}, ErrNoRoot},
		"refused":    {listed{refused}, refused},
	} {
		got, err := findRoot(t.Context(), sys, tt.list, disk, table, elsewhere)
		if got != "" || !errors.Is(err, tt.want) {
			t.Errorf("%s: got %q and %v, want %v", name, got, err, tt.want)
		}
	}
}

// listed lists no disks, and returns the error.
type listed struct{ err error }

func (l listed) Disks(context.Context) ([]block.Device, error) { return nil, l.err }

// One of the two installations on an ESP may fail: the one with --removable or the one without.
//
// Parity: M6 (failures of --removable)
func TestGRUBInstallTwice(t *testing.T) {
	for _, tt := range []struct {
		name             string
		normal, fallback error
		err              string
	}{
		{name: "both"},
		{name: "not removable", fallback: errors.New("no fallback")},
		{name: "removable only", normal: errors.New("no shim")},
		{name: "none", normal: errors.New("no shim"), fallback: errors.New("no fallback"), err: "no fallback\nno shim"},
		{
			name: "no program", fallback: fmt.Errorf("x: %w", chroot.ErrNoProgram),
			err: "x: " + chroot.ErrNoProgram.Error(),
		},
	} {
		var ran []string
		err := GRUB{Disk: "/dev/sda", Log: quiet}.installTwice(t.Context(), func(argv ...string) error {
			ran = append(ran, strings.Join(argv[1:], " "))
			if len(argv) > 2 {
				return tt.fallback
			}
			return tt.normal
		})
		if fmt.Sprint(err) != tt.err && (err != nil || tt.err != "") {
			t.Errorf("%s: got %v, want %q", tt.name, err, tt.err)
		}
		want := []string{"--no-nvram --removable", "--no-nvram"}
		if diff := cmp.Diff(want, ran); diff != "" && tt.name != "no program" {
			t.Errorf("%s: -want +got:\n%s", tt.name, diff)
		}
	}
	ctx, cancel := context.WithCancel(t.Context())
	err := GRUB{Log: quiet}.installTwice(ctx, func(...string) error { cancel(); return os.ErrDeadlineExceeded })
	if !errors.Is(err, os.ErrDeadlineExceeded) {
		t.Errorf("cancelled: got %v, want the first error", err)
	}
}
