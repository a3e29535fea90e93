package imaging

import (
	"context"
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"ironroot/agent/config"
	"ironroot/internal/test/testenv"
	"ironroot/storage/block"
	"ironroot/storage/bootloader"
	"ironroot/storage/sysfs"
)

// uefiMachine returns this machine as if it had been booted by UEFI, with variables in a directory of the test.
func uefiMachine(t *testing.T) (sys sysfs.Root, efivars string) {
	t.Helper()
	root := t.TempDir()
	efivars = filepath.Join(root, "sys/firmware/efi/efivars")
	if err := os.MkdirAll(efivars, 0o755); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"dev", "proc", "sys/block", "sys/class", "sys/dev", "sys/devices"} {
		if err := os.Symlink("/"+name, filepath.Join(root, name)); err != nil {
			t.Fatal(err)
		}
	}
	return sysfs.Root{Path: root}, efivars
}

func TestInstallBootloaderUEFI(t *testing.T) {
	t.Parallel() // sgdisk sleeps
	testenv.Programs(t, "sgdisk", "mkfs.vfat", "mmd", "mcopy")
	file := testenv.SparseFile(t, 64*mib)
	testenv.GPT(t, file, "start=2048, size=40MiB, type=uefi")
	testenv.Run(t, "mkfs.vfat", "--offset", "2048", file, "40960")
	loader := filepath.Join(t.TempDir(), "BOOTX64.EFI")
	if err := os.WriteFile(loader, []byte("MZ"), 0o600); err != nil {
		t.Fatal(err)
	}
	testenv.Run(t, "mmd", "-i", file+"@@1M", "::EFI", "::EFI/BOOT")
	testenv.Run(t, "mcopy", "-i", file+"@@1M", loader, "::EFI/BOOT/BOOTX64.EFI")

	path := testenv.Loop(t, file, 512)
	i := newImager(t, nil, block.Device{Name: filepath.Base(path), Path: path, Size: 8 * gib})
	i.o.System, i.o.Efivars = uefiMachine(t)
	var log strings.Builder
	i.o.Log = slog.New(slog.NewTextHandler(&log, nil))
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	if err := i.InstallBootloader(ended, Bootloader{RootUUID: "0x00000000"}); !errors.Is(err, context.Canceled) ||
		typeOf(err) == "CommandExecutionError" {
		t.Errorf("cancelled: got %v, want %v", err, context.Canceled)
	}
	log.Reset()
	for range 2 { // the second run replaces the entry of the first
		if err := i.InstallBootloader(t.Context(),
			Bootloader{RootUUID: "0x00000000", TargetBootMode: "uefi"}); err != nil {
			t.Fatal(err)
		}
		entries, err := filepath.Glob(filepath.Join(i.o.Efivars, "Boot0*"))
		if err != nil || len(entries) != 1 {
			t.Errorf("got boot entries %v and %v, want one", entries, err)
		}
	}
	if strings.Contains(log.String(), "level=WARN") {
		t.Errorf("got the log\n%s\nwant no warnings", log.String())
	}
}

// On a machine that was booted by UEFI, but whose kernel does not support it, a whole-disk image must have a loader
// that firmware finds without a boot entry. The log says that no entry is written.
func TestInstallBootloaderKernelWithoutUEFI(t *testing.T) {
	t.Parallel() // sgdisk sleeps
	testenv.Programs(t, "sgdisk", "mkfs.vfat", "mmd", "mcopy")
	loader := filepath.Join(t.TempDir(), "BOOTX64.EFI")
	if err := os.WriteFile(loader, []byte("MZ"), 0o600); err != nil {
		t.Fatal(err)
	}
	yes := true
	for name, tt := range map[string]struct {
		dir string // of the loader
		b   Bootloader
		err string
	}{
		"fallback":          {dir: "BOOT"},
		"no fallback":       {dir: "debian", err: "CommandExecutionError"},
		"failure ignored":   {dir: "debian", b: Bootloader{IgnoreFailure: &yes}},
		"instance by BIOS":  {dir: "debian", b: Bootloader{TargetBootMode: "bios"}},
		"no ESP":            {err: "DeviceNotFound"},
		"BIOS, with no ESP": {b: Bootloader{TargetBootMode: "bios"}},
	} {
		file := testenv.SparseFile(t, 64*mib)
		if tt.dir == "" {
			testenv.GPT(t, file, "start=2048, size=40MiB")
		} else {
			testenv.GPT(t, file, "start=2048, size=40MiB, type=uefi")
			testenv.Run(t, "mkfs.vfat", "--offset", "2048", file, "40960")
			testenv.Run(t, "mmd", "-i", file+"@@1M", "::EFI", "::EFI/"+tt.dir)
			testenv.Run(t, "mcopy", "-i", file+"@@1M", loader, "::EFI/"+tt.dir+"/BOOTX64.EFI")
		}
		path := testenv.Loop(t, file, 512)
		i := newImager(t, nil, block.Device{Name: filepath.Base(path), Path: path, Size: 8 * gib})
		params := i.o.System.Sys("kernel/boot_params/data")
		if err := os.MkdirAll(filepath.Dir(params), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(params, []byte(strings.Repeat("\x00", 0x1c0)+"EL64"), 0o600); err != nil {
			t.Fatal(err)
		}
		var log strings.Builder
		i.o.Log = slog.New(slog.NewTextHandler(&log, nil))
		err := i.InstallBootloader(t.Context(), tt.b)
		if (err == nil) != (tt.err == "") || err != nil && (typeOf(err) != tt.err ||
			!strings.Contains(err.Error(), "the kernel does not support UEFI")) {
			t.Errorf("%s: got %v, want %q", name, err, tt.err)
		}
		if err == nil && !strings.Contains(log.String(), `msg="UEFI boot entry not written`) {
			t.Errorf("%s: got the log\n%s\nwant that no entry was written", name, log.String())
		}
	}
}

// A whole-disk image without a known boot loader on its EFI system partition cannot boot by UEFI, which is an error,
// unless failures are ignored or the instance boots by BIOS. The error names what is on the partition.
//
// Parity: M8 (no loader)
func TestInstallBootloaderNothingBoots(t *testing.T) {
	testenv.Programs(t, "sfdisk", "mkfs.vfat", "mmd", "mcopy")
	loader := filepath.Join(t.TempDir(), "loader")
	if err := os.WriteFile(loader, []byte("MZ"), 0o600); err != nil {
		t.Fatal(err)
	}
	yes, no := true, false
	for _, tt := range []struct {
		name   string
		loader string // in \EFI
		b      Bootloader
		option bool
		err    string
		log    string
	}{
		{name: "Windows", loader: "bootmgfw.efi", b: Bootloader{TargetBootMode: "uefi"}, log: "boot entry written"},
		{name: "nothing", loader: "memtest.efi", b: Bootloader{TargetBootMode: "uefi"}, err: "CommandExecutionError"},
		{name: "no boot mode", loader: "memtest.efi", err: "CommandExecutionError"},
		{
			name: "disk ID", loader: "memtest.efi", b: Bootloader{RootUUID: wholeDiskUUID, TargetBootMode: "uefi"},
			err: "CommandExecutionError",
		},
		{
			name: "failure ignored", loader: "memtest.efi", b: Bootloader{TargetBootMode: "uefi", IgnoreFailure: &yes},
			log: "failure ignored",
		},
		{
			name: "option", loader: "memtest.efi", option: true, b: Bootloader{TargetBootMode: "uefi"},
			log: "failure ignored",
		},
		{
			name: "option overridden", loader: "memtest.efi", option: true,
			b: Bootloader{TargetBootMode: "uefi", IgnoreFailure: &no}, err: "CommandExecutionError",
		},
		{
			name: "instance by BIOS", loader: "memtest.efi", b: Bootloader{TargetBootMode: "bios"},
			log: `level=WARN msg="no boot loader on the EFI system partition"`,
		},
		{
			name: "partition image", loader: "memtest.efi", b: Bootloader{RootUUID: rootUUID, TargetBootMode: "uefi"},
			err: "InvalidImage",
		},
	} {
		t.Run(tt.name, func(t *testing.T) {
			file := testenv.SparseFile(t, 16*mib)
			testenv.Run(t, "sh", "-c", `printf 'label: gpt\nstart=2048, size=16384, type=U\n' | sfdisk -q "$0"`, file)
			testenv.Run(t, "mkfs.vfat", "--offset", "2048", file, "8192")
			testenv.Run(t, "mmd", "-i", file+"@@1M", "::EFI")
			testenv.Run(t, "mcopy", "-i", file+"@@1M", loader, "::EFI/"+tt.loader)
			path := testenv.Loop(t, file, 512)
			i := newImager(t, nil, block.Device{Name: filepath.Base(path), Path: path, Size: 8 * gib})
			i.o.System, i.o.Efivars = uefiMachine(t)
			i.o.Config.Update(func(c *config.Config) { c.IgnoreBootloaderFailure = tt.option })
			var log strings.Builder
			i.o.Log = slog.New(slog.NewTextHandler(&log, nil))
			err := i.InstallBootloader(t.Context(), tt.b)
			if (err == nil) != (tt.err == "") || err != nil && typeOf(err) != tt.err {
				t.Fatalf("got %v, want %q", err, tt.err)
			}
			if tt.err == "CommandExecutionError" && (!errors.Is(err, bootloader.ErrNoLoader) ||
				!strings.Contains(err.Error(), path) || !strings.Contains(err.Error(), "memtest.efi")) {
				t.Errorf("got %v, want the disk and the program", err)
			}
			if !strings.Contains(log.String(), tt.log) {
				t.Errorf("got the log\n%s\nwant %q", log.String(), tt.log)
			}
			entries, err := filepath.Glob(filepath.Join(i.o.Efivars, "Boot0*"))
			if err != nil || (len(entries) == 1) != (tt.name == "Windows") {
				t.Errorf("got boot entries %v and %v", entries, err)
			}
		})
	}
}
