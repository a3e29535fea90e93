package bootloader

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"slices"

	"ironroot/storage/block"
	"ironroot/storage/bootloader/chroot"
	"ironroot/storage/partition"
	"ironroot/storage/sysfs"
)

// GRUB holds the parameters of InstallGRUB.
type GRUB struct {
	Disk     string
	System   sysfs.Root
	Disks    block.Lister // searched for what is not on Disk; nil for none
	RootUUID string       // of the root's file system or partition
	ESPUUID  string       // of the ESP's file system or partition, "" for none
	PRePUUID string       // of the PReP boot partition on POWER, "" for none
	UEFI     bool         // the machine was booted by UEFI
	Array    *ArrayDisks  // if Disk is a Linux RAID array that firmware cannot read; nil otherwise
	Log      *slog.Logger
}

// InstallGRUB runs the GRUB of a partition image, which installs itself and writes its configuration. This runs
// programs of the image as root, see package chroot.
//
// Without an ESP, GRUB is installed at the start of the disk or in the PReP partition, unless the disk already has a
// boot sector. On an ESP it is also installed at the fallback path of UEFI, where InstallEFI finds it, and the ESP is
// added to fstab. Of an array it is installed on each disk, or on the mirror with the ESP. If the array has no root of
// the UUID, its first partition is the root. Errors wrap ErrNoRoot, ErrNoESP and errors of package chroot.
func InstallGRUB(ctx context.Context, g GRUB) error {
	if err := g.install(ctx); err != nil {
		return fmt.Errorf("install the image's GRUB on %s: %w", g.Disk, err)
	}
	return nil
}

func (g GRUB) install(ctx context.Context) error {
	table, err := partition.Read(ctx, g.Disk)
	if err != nil {
		return fmt.Errorf("%w: %w", ErrNoRoot, err)
	}
	root, err := findRoot(ctx, g.System, g.Disks, g.Disk, table, g.RootUUID)
	if errors.Is(err, ErrNoRoot) && g.Array != nil && len(table.Partitions) > 0 && ctx.Err() == nil {
		// The UUID of a whole-disk image is often the disk's.
		root, err = block.PartitionPath(g.System, g.Disk, 1), nil
		g.Log.Warn("no root with the UUID, using the array's first partition", "device", root, "uuid", g.RootUUID)
	}
	if err != nil {
		return err
	}
	if g.Array == nil && g.ESPUUID == "" && g.PRePUUID == "" && !g.UEFI {
		boots, err := hasBootSector(g.Disk, table)
		if err != nil {
			return err
		}
		if boots {
			g.Log.Info("boot loader not installed, disk already has a boot sector", "device", g.Disk)
			return nil
		}
	}
	system, err := installed(ctx, g.System, g.Disk, root, table, g.Log)
	if err != nil {
		return err
	}
	if err := g.Array.show(ctx, g.System, &system, g.Log); err != nil {
		return err
	}
	if g.ESPUUID != "" && g.Array == nil || g.Array != nil && g.Array.Mirror != "" {
		if err := g.installOnESP(ctx, table, &system); err != nil {
			return err
		}
	} else if err := g.installOnDisk(ctx, table, system); err != nil {
		return err
	}
	return configureGRUB(ctx, system)
}

// installed describes the system on a disk. Its programs see the disk, its partitions, and the FAT file systems of the
// disk that fstab mounts.
func installed(
	ctx context.Context, sys sysfs.Root, disk, root string, table *partition.Table, log *slog.Logger,
) (chroot.System, error) {
	system := chroot.System{Root: root, Devices: []string{disk}}
	for _, p := range table.Partitions {
		system.Devices = append(system.Devices, block.PartitionPath(sys, disk, p.Number))
	}
	fstab, err := readFstab(ctx, root)
	if err != nil {
		return chroot.System{}, err
	}
	for _, line := range fatMounts(fstab) {
		device, err := findMount(ctx, sys, disk, table, line.source)
		if err != nil {
			log.Warn("file system of fstab not mounted", "device", line.source, "mountpoint", line.at, "err", err)
			continue
		}
		system.Mounts = append(system.Mounts, chroot.Mount{Device: device, Kind: "vfat", At: line.at})
	}
	return system, nil
}

// show makes the disks of an array and their partitions visible to the system's programs, and lets dracut assemble the
// array. It does nothing if a is nil.
func (a *ArrayDisks) show(ctx context.Context, sys sysfs.Root, system *chroot.System, log *slog.Logger) error {
	if a == nil {
		return nil
	}
	for _, disk := range a.Disks {
		parts, err := block.Partitions(ctx, sys, disk)
		if err != nil {
			return err
		}
		system.Devices = append(system.Devices, disk)
		for _, part := range parts {
			system.Devices = append(system.Devices, part.Path)
		}
	}
	changed, err := addArrayParameter(ctx, system.Root, a.UUID)
	if changed {
		log.Info("kernel parameter for dracut added", "device", system.Root, "array", a.UUID)
	}
	return err
}

func (g GRUB) installOnDisk(ctx context.Context, table *partition.Table, system chroot.System) error {
	targets := []string{g.Disk}
	switch {
	case g.PRePUUID != "":
		target, err := findRoot(ctx, g.System, g.Disks, g.Disk, table, g.PRePUUID)
		if err != nil {
			return fmt.Errorf("PReP partition: %w", err)
		}
		targets = []string{target}
	case g.Array != nil:
		targets = g.Array.Disks
	}
	for _, target := range targets {
		g.Log.Warn("running the image's own GRUB, as enable_bios_bootloader_install allows", "device", target)
		if err := chroot.Run(ctx, system, nil, grubInstall, target); err != nil {
			return fmt.Errorf("on %s: %w", target, err)
		}
	}
	return nil
}

// grubInstall lists the names of the program, which depend on the distribution.
const grubInstall = "grub2-install|grub-install"

// installOnESP mounts the ESP in the system and installs GRUB twice: at the fallback path of UEFI and in the
// distribution's directory. One of the two may fail, because GRUB built for Secure Boot rejects some arguments. Boot
// entries are written by InstallEFI.
func (g GRUB) installOnESP(ctx context.Context, table *partition.Table, system *chroot.System) error {
	name, err := g.findESP(table, system)
	if err != nil {
		return err
	}
	g.Log.Warn("running the image's own GRUB, as enable_bios_bootloader_install allows", "device", system.ESP)
	run := func(argv ...string) error { return chroot.Run(ctx, *system, nil, argv...) }
	if err := g.installTwice(ctx, run); err != nil {
		return err
	}
	_, err = changeFstab(ctx, system.Root, name)
	return err
}

// findESP sets the device of the ESP, and returns its name in an fstab.
func (g GRUB) findESP(table *partition.Table, system *chroot.System) (name string, err error) {
	if g.Array != nil {
		system.ESP = g.Array.Mirror
		size, err := sizeOf(g.Array.Mirror)
		if err != nil {
			return "", err
		}
		return nameInFstab(g.Array.Mirror, partition.Partition{Size: size}, "")
	}
	esp, err := findESP(g.Disk, table, g.ESPUUID)
	if err != nil {
		return "", err
	}
	system.ESP = block.PartitionPath(g.System, g.Disk, esp.Number)
	return nameInFstab(g.Disk, esp, g.ESPUUID)
}

// sizeOf returns the size of a device in bytes.
func sizeOf(device string) (int64, error) {
	f, err := os.Open(device)
	if err != nil {
		return 0, err
	}
	defer f.Close() //nolint:errcheck // only read
	size, _, err := block.Geometry(f)
	return size, err
}

// installTwice returns an error if both installations fail. The fallback path comes first: the second installation
// keeps the modules of the first until it is done, and a small root may lack the space for both.
func (g GRUB) installTwice(ctx context.Context, run func(argv ...string) error) error {
	var failures []error
	ways := [][]string{{grubInstall, "--no-nvram", "--removable"}, {grubInstall, "--no-nvram"}}
	for _, argv := range ways {
		err := run(argv...)
		if err != nil && (ctx.Err() != nil || errors.Is(err, chroot.ErrNoProgram)) {
			return err
		}
		if err != nil {
			g.Log.Warn("GRUB of the image not installed with these arguments",
				"device", g.Disk, "arguments", argv[1:], "err", err)
			failures = append(failures, err)
		}
	}
	if len(failures) < len(ways) {
		return nil
	}
	return errors.Join(failures...)
}

// configureGRUB writes GRUB's menu to the directory of the image's GRUB.
func configureGRUB(ctx context.Context, system chroot.System) error {
	env := []string{"GRUB_DISABLE_OS_PROBER=true", "GRUB_SAVEDEFAULT=true"}
	err := chroot.Run(ctx, system, env, "grub2-mkconfig", "-o", "/boot/grub2/grub.cfg")
	if errors.Is(err, chroot.ErrNoProgram) {
		err = chroot.Run(ctx, system, env, "grub-mkconfig", "-o", "/boot/grub/grub.cfg")
	}
	return err
}

// hasBootSector reports whether the disk has a partition that is marked bootable, and code in its own first sector or
// in the first sector of such a partition.
func hasBootSector(disk string, table *partition.Table) (bool, error) {
	f, err := os.Open(disk)
	if err != nil {
		return false, err
	}
	defer f.Close() //nolint:errcheck // only read
	const codeSize = 218
	for _, p := range table.Partitions {
		if !p.Boot && p.Type != partition.TypeESP {
			continue
		}
		for _, at := range []int64{0, p.Start} {
			sector := make([]byte, 512)
			if _, err := f.ReadAt(sector, at); err != nil {
				return false, err
			}
			code := slices.ContainsFunc(sector[:codeSize], func(b byte) bool { return b != 0 })
			if code && binary.LittleEndian.Uint16(sector[510:]) == 0xaa55 {
				return true, nil
			}
		}
	}
	return false, nil
}
