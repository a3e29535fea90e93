package erase

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"ironroot/internal/test/testenv"
	"ironroot/storage/sysfs"
)

// firmware returns a machine with two entries of pstore, and two crash logs among its UEFI variables.
func firmware(t *testing.T, mounts string) (sys sysfs.Root, pstore, variables string) {
	t.Helper()
	sys = sysfs.Root{Path: t.TempDir()}
	pstore, variables = sys.Sys("fs/pstore"), sys.Sys("firmware/efi/efivars")
	for path, text := range map[string]string{
		sys.Proc("mounts"):                       mounts,
		filepath.Join(pstore, "dmesg-efi-1"):     "oops",
		filepath.Join(pstore, "dmesg-efi-2"):     "oops",
		filepath.Join(variables, crashLog):       "panic",
		filepath.Join(variables, oldCrashLog):    "panic",
		filepath.Join(variables, otherVariables): "boot entry",
	} {
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return sys, pstore, variables
}

const (
	crashLog       = "dump-type0-1-1-1700000000-C-cfc8fc79-be2e-4ddc-97f0-9f98bfe298a0"
	oldCrashLog    = "dump-type0-1-1-1700000000-CFC8FC79-BE2E-4DDC-97F0-9F98BFE298A0"
	otherVariables = "Boot0001-8be4df61-93ca-11d2-aa0d-00e098032b8c"

	bothMounts = "sysfs /sys sysfs rw 0 0\npstore /sys/fs/pstore pstore rw,nosuid 0 0\n" +
		"efivarfs /sys/firmware/efi/efivars efivarfs rw 0 0\n"
)

func TestPstore(t *testing.T) {
	sys, pstore, variables := firmware(t, bothMounts)
	if searched, err := Pstore(t.Context(), sys); err != nil || !searched {
		t.Fatalf("got UEFI variables searched %v and %v, want true", searched, err)
	}
	if entries, err := os.ReadDir(pstore); err != nil || len(entries) != 0 {
		t.Errorf("pstore: got %v and %v, want nothing left", entries, err)
	}
	entries, err := os.ReadDir(variables)
	if err != nil || len(entries) != 1 || entries[0].Name() != otherVariables {
		t.Errorf("UEFI variables: got %v and %v, want %s alone", entries, err, otherVariables)
	}
}

// A machine booted by BIOS without pstore has nothing to erase. The result reports that UEFI variables were not
// searched.
func TestPstoreNone(t *testing.T) {
	sys, pstore, _ := firmware(t, "sysfs /sys sysfs rw 0 0\n")
	for _, directory := range []string{sys.Sys("firmware"), pstore} {
		if err := os.RemoveAll(directory); err != nil {
			t.Fatal(err)
		}
	}
	if searched, err := Pstore(t.Context(), sys); err != nil || searched {
		t.Errorf("got UEFI variables searched %v and %v, want false", searched, err)
	}
}

// Crash logs that remain, or cannot be listed, are an error.
func TestPstoreFails(t *testing.T) {
	testenv.Root(t)
	unmounted, _, _ := firmware(t, "pstore /sys/fs/pstore pstore rw 0 0\n")
	if _, err := Pstore(t.Context(), unmounted); err == nil ||
		!strings.Contains(err.Error(), "efivarfs is not mounted") {
		t.Errorf("without efivarfs: got %v, want an error", err)
	}
	unmounted, _, _ = firmware(t, "efivarfs /sys/firmware/efi/efivars efivarfs rw 0 0\n")
	if _, err := Pstore(t.Context(), unmounted); err == nil || !strings.Contains(err.Error(), "pstore is not mounted") {
		t.Errorf("without pstore: got %v, want an error", err)
	}
	sys, _, variables := firmware(t, bothMounts)
	if err := unix.Mount(variables, variables, "", unix.MS_BIND, ""); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = unix.Unmount(variables, 0) })
	if err := unix.Mount("", variables, "", unix.MS_REMOUNT|unix.MS_BIND|unix.MS_RDONLY, ""); err != nil {
		t.Fatal(err)
	}
	_, err := Pstore(t.Context(), sys)
	if err == nil || !strings.Contains(err.Error(), crashLog+" is left") || !errors.Is(err, unix.EROFS) {
		t.Errorf("crash logs that cannot be removed: got %v, want an error that names %s", err, crashLog)
	}
}

// Files that cannot be read are an error, because they may contain a crash log.
func TestPstoreErrors(t *testing.T) {
	missing, _, _ := firmware(t,
		"pstore /sys/fs/missing pstore rw 0 0\nefivarfs /sys/firmware/efi/missing efivarfs rw 0 0\n")
	file, _, _ := firmware(t, bothMounts)
	if err := os.RemoveAll(file.Sys("firmware")); err != nil {
		t.Fatal(err)
	}
	put(t, file.Sys("firmware"), "")
	unreadable, _, _ := firmware(t, "efivarfs /sys/firmware/efi/efivars efivarfs rw 0 0\n")
	if err := os.RemoveAll(unreadable.Sys("fs")); err != nil {
		t.Fatal(err)
	}
	put(t, unreadable.Sys("fs"), "")
	sys, pstore, _ := firmware(t, bothMounts)
	cancelled, cancel := context.WithCancel(t.Context())
	cancel()
	for name, c := range map[string]struct {
		ctx  context.Context
		sys  sysfs.Root
		want error
	}{
		"no mounts":             {t.Context(), sysfs.Root{Path: t.TempDir()}, fs.ErrNotExist},
		"mount point not there": {t.Context(), missing, fs.ErrNotExist},
		"firmware not readable": {t.Context(), file, unix.ENOTDIR},
		"pstore not readable":   {t.Context(), unreadable, unix.ENOTDIR},
		"cancelled":             {cancelled, sys, context.Canceled},
	} {
		if searched, err := Pstore(c.ctx, c.sys); !errors.Is(err, c.want) || searched {
			t.Errorf("%s: got UEFI variables searched %v and %v, want false and %v", name, searched, err, c.want)
		}
	}
	if entries, err := os.ReadDir(pstore); err != nil || len(entries) != 2 {
		t.Errorf("cancelled: got %v and %v, want both entries", entries, err)
	}
	if err := os.Remove(sys.Proc("mounts")); err != nil {
		t.Fatal(err)
	}
	if searched, err := crashVariables(t.Context(), file); !errors.Is(err, unix.ENOTDIR) || searched {
		t.Errorf("UEFI variables not readable: got searched %v and %v, want false and %v", searched, err, unix.ENOTDIR)
	}
	if searched, err := crashVariables(t.Context(), sys); !errors.Is(err, fs.ErrNotExist) || searched {
		t.Errorf("UEFI variables without mounts: got searched %v and %v, want false and %v",
			searched, err, fs.ErrNotExist)
	}
}

// The immutable flag of efivarfs does not protect a crash log.
func TestPstoreImmutable(t *testing.T) {
	testenv.Programs(t, "mkfs.ext4")
	sys, _, variables := firmware(t, bothMounts)
	image := testenv.SparseFile(t, 4*mib)
	testenv.Run(t, "mkfs.ext4", "-q", image)
	testenv.Mount(t, testenv.Loop(t, image, 512), variables, "ext4", "")
	t.Cleanup(func() {
		if err := unix.Unmount(variables, 0); err != nil {
			t.Error(err)
		}
	})
	path := filepath.Join(variables, crashLog)
	put(t, path, "panic")
	f, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	const immutable = 0x10 // FS_IMMUTABLE_FL
	if err := errors.Join(unix.IoctlSetPointerInt(int(f.Fd()), unix.FS_IOC_SETFLAGS, immutable),
		f.Close()); err != nil {
		t.Fatal(err)
	}
	if _, err := Pstore(t.Context(), sys); err != nil {
		t.Error(err)
	}
	if _, err := os.Stat(path); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("crash log: got %v, want %v", err, fs.ErrNotExist)
	}
}
