package imaging

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"ironroot/agent/config"
	"ironroot/internal/test/disktest"
	"ironroot/internal/test/testenv"
	"ironroot/storage/block"
	"ironroot/storage/bootloader"
	"ironroot/storage/bootloader/chroot"
	"ironroot/storage/partition"
	"ironroot/storage/sysfs"
)

// TestMain runs the child process that enters the root of an image.
func TestMain(m *testing.M) {
	chroot.Child()
	os.Exit(m.Run())
}

// hold opens a device exclusively, as a mount does, until release is called. The Imager does not wait long for it.
func hold(t *testing.T, i *Imager, device string) (release func()) {
	t.Helper()
	retries := func(n int) {
		i.o.Config.Update(func(c *config.Config) { c.DiskPartitioner.CheckDeviceMaxRetries = n })
	}
	retries(impatient)
	f, err := os.OpenFile(device, os.O_RDONLY|unix.O_EXCL, 0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = f.Close() }) // again, where a test failed
	return func() {
		_ = f.Close()
		retries(patient)
	}
}

// A disk in use is not changed.
func TestPartitionImageOnADiskInUse(t *testing.T) {
	raw := rootImage(t, rootUUID)
	disk, i := layoutDisk(t, 512, "boot_mode:bios")
	fillNoise(t, disk)
	before := fingerprint(t, disk)
	hold(t, i, disk)
	_, err := i.Prepare(t.Context(),
		partitionImage(t, raw, serve(t, raw).URL, "raw", small(func(*PartitionInfo) {})), "")
	if typeOf(err) != "DeploymentError" || !strings.Contains(err.Error(), "erase the metadata of "+disk) {
		t.Errorf("got %s (%v), want a DeploymentError that names the disk", typeOf(err), err)
	}
	if fingerprint(t, disk) != before {
		t.Error("the disk has changed")
	}
}

// A disk that is smaller than the size that the kernel reports is not partitioned.
func TestPartitionImageOnASmallerDisk(t *testing.T) {
	raw := rootImage(t, rootUUID)
	disk, i := layoutDisk(t, 512, "boot_mode:bios")
	list := i.o.Disks
	i.o.Disks = disktest.Lister(func(ctx context.Context) ([]block.Device, error) {
		disks, err := list.Disks(ctx)
		disks[0].Size = gib
		return disks, err
	})
	_, err := i.Prepare(t.Context(),
		partitionImage(t, raw, serve(t, raw).URL, "raw", &PartitionInfo{Root: 300 * mib}), "")
	if typeOf(err) != "DeploymentError" || !strings.Contains(err.Error(), disk) {
		t.Errorf("got %s (%v), want a DeploymentError that names the disk", typeOf(err), err)
	}
}

// A config drive that cannot be copied into a file system of the disk is an error before the disk is changed.
func TestPartitionImageUnreadableDrive(t *testing.T) {
	raw := rootImage(t, rootUUID)
	drive := filepath.Join(t.TempDir(), "drive")
	if err := os.WriteFile(drive, []byte(strings.Repeat("junk", 1<<18)), 0o600); err != nil {
		t.Fatal(err)
	}
	disk, i := layoutDisk(t, 512, "boot_mode:bios")
	i.o.Config.Update(func(c *config.Config) { c.ConfigDriveRebuild = true })
	fillNoise(t, disk)
	before := fingerprint(t, disk)
	info := partitionImage(t, raw, serve(t, raw).URL, "raw", small(func(*PartitionInfo) {}))
	if _, err := i.Prepare(t.Context(), info, serve(t, drive).URL+"/drive"); typeOf(err) != "DeploymentError" ||
		!strings.Contains(err.Error(), "config drive") {
		t.Errorf("got %s (%v), want a DeploymentError about the config drive", typeOf(err), err)
	}
	if fingerprint(t, disk) != before {
		t.Error("the disk has changed")
	}
}

// With preserve_ephemeral the partitions already exist and can be in use: a partition that cannot be written is an
// error that names it.
func TestPreserveEphemeralInUse(t *testing.T) {
	t.Parallel() // sgdisk sleeps
	testenv.Programs(t, "sfdisk")
	raw := rootImage(t, rootUUID)
	drive, _ := configDrive(t)
	disk, i := layoutDisk(t, 512, "boot_mode:bios")
	layout := PartitionInfo{Root: 40 * mib, Swap: 5 * mib, Ephemeral: 30 * mib, EphemeralFormat: "ext4"}
	prepare := func() error {
		p := layout
		_, err := i.Prepare(t.Context(), partitionImage(t, raw, serve(t, raw).URL, "raw", &p), drive)
		return err
	}
	if err := prepare(); err != nil {
		t.Fatal(err)
	}
	paths := i.PartitionUUIDs()["partitions"].(map[string]string)
	layout.PreserveEphemeral = true
	for _, name := range []string{"swap", "configdrive"} {
		release := hold(t, i, paths[name])
		if err := prepare(); typeOf(err) != "DeploymentError" || !strings.Contains(err.Error(), paths[name]) {
			t.Errorf("%s in use: got %s (%v), want a DeploymentError that names %s",
				name, typeOf(err), err, paths[name])
		}
		if got := i.PartitionUUIDs(); len(got) > 0 {
			t.Errorf("%s in use: got partition uuids %v, want none", name, got)
		}
		release()
	}
	// The table has a smaller root, and the kernel does not reread it while root is in use.
	release := hold(t, i, paths["root"])
	testenv.Run(t, "sh", "-c",
		`echo ',38M' | PATH=$PATH:/usr/sbin sfdisk -q --no-reread --no-tell-kernel -N 4 "$0"`, disk)
	layout.Root = 38 * mib
	if err := prepare(); typeOf(err) != "DeploymentError" || !strings.Contains(err.Error(), "partitions of "+disk) {
		t.Errorf("root in use: got %s (%v), want a DeploymentError about the partitions of %s", typeOf(err), err, disk)
	}
	release()
	if err := prepare(); err != nil {
		t.Errorf("nothing in use: %v", err)
	}
}

// An image is no longer complete after a repeated deployment that could not write its config drive.
func TestPartitionImageAgainWithDriveInUse(t *testing.T) {
	t.Parallel() // sgdisk sleeps
	raw := rootImage(t, rootUUID)
	drive, _ := configDrive(t)
	_, i := layoutDisk(t, 512, "boot_mode:bios")
	s := serve(t, raw)
	prepare := func() error {
		info := partitionImage(t, raw, s.URL, "raw", small(func(*PartitionInfo) {}))
		info.StreamRaw = false
		_, err := i.Prepare(t.Context(), info, drive)
		return err
	}
	if err := prepare(); err != nil {
		t.Fatal(err)
	}
	path := i.PartitionUUIDs()["partitions"].(map[string]string)["configdrive"]
	release := hold(t, i, path)
	if err := prepare(); typeOf(err) != "DeploymentError" || !strings.Contains(err.Error(), path) {
		t.Errorf("got %s (%v), want a DeploymentError that names %s", typeOf(err), err, path)
	}
	if got := i.PartitionUUIDs(); len(got) > 0 {
		t.Errorf("got partition uuids %v, want none", got)
	}
	release()
	downloads := s.downloads.Load()
	if err := prepare(); err != nil || s.downloads.Load() == downloads {
		t.Errorf("got %v and %d downloads more, want the image written again", err, s.downloads.Load()-downloads)
	}
}

// The wait for the device nodes of partitions ends after the time limit of the option, both on a new disk and on one
// that has the image.
func TestPartitionWithoutNode(t *testing.T) {
	t.Parallel() // sgdisk sleeps
	raw := rootImage(t, rootUUID)
	for _, first := range []bool{true, false} {
		disk, i := layoutDisk(t, 512, "boot_mode:bios")
		s := serve(t, raw)
		prepare := func() error {
			info := partitionImage(t, raw, s.URL, "raw", small(func(p *PartitionInfo) { p.Swap = 0 }))
			info.StreamRaw = false
			_, err := i.Prepare(t.Context(), info, "")
			return err
		}
		if !first {
			if err := prepare(); err != nil {
				t.Fatal(err)
			}
		}
		downloads, table := s.downloads.Load(), sumOf(t, disk, 0, mib)
		i.o.Config.Update(func(c *config.Config) { c.DiskUtils.PartitionDetectionAttempts = 1 })
		sys := sysfs.Root{Path: t.TempDir()} // the machine's sysfs, and no nodes
		if err := os.Symlink("/sys", sys.Sys()); err != nil {
			t.Fatal(err)
		}
		i.o.System = sys
		err := prepare()
		if typeOf(err) != "DeploymentError" || !strings.Contains(err.Error(), "root partition of "+disk) ||
			!strings.Contains(err.Error(), "no device node") {
			t.Errorf("first %v: got %s (%v), want a DeploymentError that says what was waited for",
				first, typeOf(err), err)
		}
		if s.downloads.Load() != downloads {
			t.Errorf("first %v: got an image for a partition that is not there", first)
		}
		if !first && sumOf(t, disk, 0, mib) != table {
			t.Error("the disk that has the image was laid out again")
		}
	}
}

// A root file system without a UUID is identified by the UUID of its partition.
func TestPartitionImageWithoutUUID(t *testing.T) {
	t.Parallel() // sgdisk sleeps
	testenv.Programs(t, "blkid")
	raw := filepath.Join(t.TempDir(), "root.img")
	if err := os.WriteFile(raw, []byte(strings.Repeat("junk", 1<<20)), 0o600); err != nil {
		t.Fatal(err)
	}
	disk, i := layoutDisk(t, 512, "boot_mode:bios,disk_label:gpt")
	if _, err := i.Prepare(t.Context(),
		partitionImage(t, raw, serve(t, raw).URL, "raw", small(func(p *PartitionInfo) { p.Swap = 0 })),
		""); err != nil {
		t.Fatal(err)
	}
	want := tag(t, block.PartitionPath(sysfs.Root{}, disk, 2), "PART_ENTRY_UUID")
	if got := i.PartitionUUIDs()["root uuid"]; want == "" || got != want {
		t.Errorf("got %v, want the partition's UUID %q", got, want)
	}
}

// grubImage makes a root file system with a GRUB that only writes a report.
func grubImage(t *testing.T) string {
	t.Helper()
	testenv.Programs(t, "mke2fs")
	installer := filepath.Join(t.TempDir(), "installer")
	testenv.Run(t, "env", "CGO_ENABLED=0", "go", "build", "-o", installer,
		"ironroot/storage/bootloader/chroot/testdata/installer")
	tree := t.TempDir()
	for _, name := range []string{"dev", "proc", "sys", "run", "tmp", "etc", "boot/efi"} {
		if err := os.MkdirAll(filepath.Join(tree, name), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	for _, name := range []string{"usr/sbin/grub-install", "usr/sbin/grub-mkconfig"} {
		testenv.Run(t, "install", "-D", installer, filepath.Join(tree, name))
	}
	path := testenv.SparseFile(t, 32*mib)
	testenv.Run(t, "mke2fs", "-q", "-t", "ext4", "-U", rootUUID, "-d", tree, path)
	return path
}

// The GRUB of a partition image for BIOS installs its boot loader. A root that does not exist is a DeviceNotFound, by
// BIOS and by UEFI.
func TestInstallBootloaderGRUB(t *testing.T) {
	t.Parallel() // sgdisk sleeps
	raw := grubImage(t)
	for _, uefi := range []bool{false, true} {
		mode := map[bool]string{false: "bios", true: "uefi"}[uefi]
		t.Run(mode, func(t *testing.T) {
			_, i := layoutDisk(t, 512, "boot_mode:"+mode)
			if uefi {
				i.o.System = linkedSystem(t)
			}
			i.o.Config.Update(func(c *config.Config) { c.EnableBIOSBootloaderInstall = !uefi })
			info := partitionImage(t, raw, serve(t, raw).URL, "raw", small(func(p *PartitionInfo) { p.Swap = 0 }))
			if _, err := i.Prepare(t.Context(), info, ""); err != nil {
				t.Fatal(err)
			}
			b := Bootloader{RootUUID: rootUUID, TargetBootMode: mode}
			if uefi {
				b.EFISystemPartUUID = i.PartitionUUIDs()["efi system partition uuid"].(string)
			}
			if !uefi {
				if err := i.InstallBootloader(t.Context(), b); err != nil {
					t.Errorf("got %v, want success", err)
				}
			}
			b.RootUUID = "ffffffff-1111-4222-8333-444455556666"
			if err := i.InstallBootloader(t.Context(), b); typeOf(err) != "DeviceNotFound" ||
				!strings.Contains(err.Error(), b.RootUUID) {
				t.Errorf("no such root: got %s (%v), want a DeviceNotFound that names it", typeOf(err), err)
			}
		})
	}
}

// The root is searched on other disks, too, but neither on those that the hardware managers hide nor on those that the
// node's skip list protects: the programs of the root would run, and its files would be changed.
func TestInstallBootloaderSearchesUnprotected(t *testing.T) {
	t.Parallel() // sgdisk sleeps
	testenv.Programs(t, "tune2fs", "sgdisk")
	const uuid = "9c1f6a52-7a0e-4e8e-9b6e-3f3c1f6d2b11"
	image := grubImage(t)
	testenv.Run(t, "tune2fs", "-U", uuid, image)
	path := testenv.Loop(t, image, 512)
	other := block.Device{Name: filepath.Base(path), Path: path, Type: "disk", Size: 32 * mib}
	for name, tt := range map[string]struct {
		hidden bool
		skip   string
		want   string
	}{
		"shown":     {},
		"hidden":    {hidden: true, want: "DeviceNotFound"},
		"protected": {skip: fmt.Sprintf(`{"name": %q}`, path), want: "DeviceNotFound"},
		"another":   {skip: `{"name": "/dev/sdz"}`},
	} {
		deployed, i := layoutDisk(t, 512, "boot_mode:bios")
		testenv.GPT(t, deployed, "start=2048, size=8MiB")
		i.o.Config.Update(func(c *config.Config) { c.EnableBIOSBootloaderInstall = true })
		i.o.Node.Set(testNode(t, fmt.Sprintf(
			`{"uuid": "b77a8c26", "properties": {"root_device": {"name": %q}, "skip_block_devices": [%s]}}`,
			deployed, tt.skip)))
		list := i.o.Disks
		i.o.Disks = disktest.Lister(func(ctx context.Context) ([]block.Device, error) {
			disks, err := list.Disks(ctx)
			if !tt.hidden {
				disks = append(disks, other)
			}
			return disks, err
		})
		err := i.InstallBootloader(t.Context(), Bootloader{RootUUID: uuid, TargetBootMode: "bios"})
		if tt.want == "" && err != nil || tt.want != "" && (typeOf(err) != tt.want ||
			!strings.Contains(err.Error(), "no other device, has the UUID "+uuid)) {
			t.Errorf("%s: got %v, want %q", name, err, tt.want)
		}
	}
}

// By UEFI, GRUB counts as installed only if a loader has a boot entry afterwards.
func TestInstallGRUBWritesEntries(t *testing.T) {
	t.Parallel() // sgdisk sleeps
	testenv.Programs(t, "mmd", "mcopy")
	raw := rootImage(t, rootUUID)
	path, i := layoutDisk(t, 512, "boot_mode:uefi")
	i.o.System, i.o.Efivars = uefiMachine(t)
	if _, err := i.Prepare(t.Context(),
		partitionImage(t, raw, serve(t, raw).URL, "raw", small(func(*PartitionInfo) {})), ""); err != nil {
		t.Fatal(err)
	}
	uuids := i.PartitionUUIDs()
	b := Bootloader{RootUUID: rootUUID, EFISystemPartUUID: uuids["efi system partition uuid"].(string)}
	d := block.Device{Name: filepath.Base(path), Path: path}
	entries := func() int {
		t.Helper()
		names, err := filepath.Glob(filepath.Join(i.o.Efivars, "Boot0*"))
		if err != nil {
			t.Fatal(err)
		}
		return len(names)
	}
	idle := func(context.Context, bootloader.GRUB) error { return nil }
	if err := i.installGRUB(t.Context(), idle, d, b, true); !errors.Is(err, bootloader.ErrNoLoader) ||
		typeOf(err) != "CommandExecutionError" || entries() != 0 {
		t.Errorf("no loader: got %v and %d entries, want %v and none", err, entries(), bootloader.ErrNoLoader)
	}
	loader := filepath.Join(t.TempDir(), "BOOTX64.EFI")
	if err := os.WriteFile(loader, []byte("MZ"), 0o600); err != nil {
		t.Fatal(err)
	}
	grub := func(_ context.Context, g bootloader.GRUB) error {
		if g.Disk != path || g.RootUUID != b.RootUUID || g.ESPUUID != b.EFISystemPartUUID || !g.UEFI {
			t.Errorf("got %+v, want %s with root and ESP of %+v", g, path, b)
		}
		esp := uuids["partitions"].(map[string]string)[partitionNames[partition.RoleESP]]
		testenv.Run(t, "mmd", "-i", esp, "::EFI", "::EFI/BOOT")
		testenv.Run(t, "mcopy", "-i", esp, loader, "::EFI/BOOT/BOOTX64.EFI")
		return nil
	}
	if err := i.installGRUB(t.Context(), grub, d, b, true); err != nil || entries() != 1 {
		t.Errorf("got %v and %d entries, want success and one", err, entries())
	}
}

// A disk with an intact table and an unreadable root fails the command. The image is not written again.
func TestPresentUnreadableRoot(t *testing.T) {
	t.Parallel() // sgdisk sleeps
	raw := rootImage(t, rootUUID)
	path, i := layoutDisk(t, 512, "boot_mode:bios")
	info := partitionImage(t, raw, serve(t, raw).URL, "raw", small(func(p *PartitionInfo) { p.Swap = 0 }))
	info.StreamRaw = false
	if _, err := i.Prepare(t.Context(), info, ""); err != nil {
		t.Fatal(err)
	}
	backing, err := os.ReadFile("/sys/class/block/" + filepath.Base(path) + "/loop/backing_file")
	if err != nil {
		t.Fatal(err)
	}
	if err := os.Truncate(strings.TrimSpace(string(backing)), mib); err != nil {
		t.Fatal(err)
	}
	const want = "UUID of the root partition"
	if _, err := i.Prepare(t.Context(), info, ""); typeOf(err) != "DeploymentError" || !errors.Is(err, unix.EIO) ||
		!strings.Contains(err.Error(), want) {
		t.Errorf("got %v, want a DeploymentError with %q and %v", err, want, unix.EIO)
	}
}
