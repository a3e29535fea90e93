package imaging

import (
	"context"
	"errors"
	"fmt"

	"ironroot/agent/fault"
	"ironroot/storage/block"
	"ironroot/storage/bootloader"
	"ironroot/storage/fat"
	"ironroot/storage/partition"
)

// bootArray returns the disk as an array whose disks need boot loaders of their own, nil if firmware can read it.
func (i *Imager) bootArray(ctx context.Context, disk block.Device) (*bootloader.ArrayDisks, error) {
	err := bootloader.CheckArray(i.o.System, disk)
	if !errors.Is(err, bootloader.ErrArray) {
		return nil, err
	}
	return bootloader.OpenArray(ctx, i.o.System, disk, i.o.Log)
}

// checkBootable returns an error if the disk is an array that the machine will not be able to boot from, unless the
// option ignore_bootloader_failure is set. Without the check, install_bootloader would fail after the image was
// written.
func (i *Imager) checkBootable(ctx context.Context, disk block.Device) error {
	uefi := bootloader.FirmwareIsUEFI(i.o.System)
	array, err := i.bootArray(ctx, disk)
	if err == nil && array != nil {
		err = array.CheckSpace(ctx, uefi)
		if err == nil && !uefi && !i.o.Config.Get().EnableBIOSBootloaderInstall {
			err = fmt.Errorf("%s: %w; for BIOS, only the image's own GRUB can install itself on its disks, which "+
				"enable_bios_bootloader_install must allow", disk.Path, bootloader.ErrArray)
		}
	}
	if err == nil {
		return nil
	}
	if i.o.Config.Get().IgnoreBootloaderFailure && ctx.Err() == nil {
		i.o.Log.Warn("image is written to a disk that firmware cannot boot from", "device", disk.Path, "err", err)
		return nil
	}
	return fault.ImageWrite(disk.Path, fmt.Errorf("%w; the disk was not written to; "+
		"set the option ignore_bootloader_failure if the machine boots another way", err))
}

// hasMovedESP reports whether the EFI system partition of an array was moved to its disks since the image was written.
func (i *Imager) hasMovedESP(path string) bool {
	i.mu.Lock()
	defer i.mu.Unlock()
	return i.movedESP == path
}

// installEFIOnArray moves the EFI system partition to the disks of an array, and writes boot entries for each of them.
// If the partition has no loader, it changes nothing.
func (i *Imager) installEFIOnArray(ctx context.Context, array *bootloader.ArrayDisks, espUUID string) error {
	if i.hasMovedESP(array.Path) {
		members, err := array.ESP(ctx)
		if err != nil {
			return err
		}
		return i.writeEntries(ctx, members)
	}
	source, err := bootloader.FindESP(ctx, array.Path, espUUID)
	if err != nil {
		return err
	}
	if err := bootloader.CheckLoaders(array.Path, source); err != nil {
		return err
	}
	members, err := i.moveESP(ctx, array, &source)
	if err != nil {
		return err
	}
	return i.writeEntries(ctx, members)
}

// moveESP moves the EFI system partition to the disks of an array; a nil source stands for an empty one.
func (i *Imager) moveESP(
	ctx context.Context, array *bootloader.ArrayDisks, source *partition.Partition,
) ([]bootloader.ESP, error) {
	members, err := array.MoveESP(ctx, source)
	if err != nil {
		return nil, err
	}
	i.mu.Lock()
	defer i.mu.Unlock()
	i.movedESP = array.Path
	return members, nil
}

// writeEntries writes boot entries for the loaders on each member of the mirror with the EFI system partition. The
// labels differ, because an entry replaces others with its label.
func (i *Imager) writeEntries(ctx context.Context, members []bootloader.ESP) error {
	for n, member := range members {
		if err := bootloader.InstallEFI(ctx, i.o.System, member.Disk, bootloader.Options{
			ESP: member.Number, Suffix: fmt.Sprintf(" (RAID, part%d)", n), Efivars: i.o.Efivars, Log: i.o.Log,
		}); err != nil {
			return err
		}
	}
	return nil
}

// installGRUBOnArray runs the image's own GRUB with install: on each disk of an array for BIOS, on the mirror with the
// EFI system partition for UEFI.
func (i *Imager) installGRUBOnArray(
	ctx context.Context, install func(context.Context, bootloader.GRUB) error, array *bootloader.ArrayDisks,
	grub bootloader.GRUB,
) error {
	grub.Array = array
	if !grub.UEFI {
		if err := array.AddBIOSBoot(ctx); err != nil {
			return err
		}
		return install(ctx, grub)
	}
	if !i.hasMovedESP(array.Path) {
		source, err := findSource(ctx, array, grub.ESPUUID)
		if err != nil {
			return err
		}
		if _, err := i.moveESP(ctx, array, source); err != nil {
			return err
		}
	}
	var members []bootloader.ESP
	err := array.UseESP(ctx, func(on []bootloader.ESP) error {
		members = on
		return install(ctx, grub)
	})
	if err != nil {
		return err
	}
	return i.writeEntries(ctx, members)
}

// findSource returns the EFI system partition of an array, nil if there is none with a file system.
func findSource(ctx context.Context, array *bootloader.ArrayDisks, uuid string) (*partition.Partition, error) {
	source, err := bootloader.FindESP(ctx, array.Path, uuid)
	if err == nil {
		err = bootloader.CheckLoaders(array.Path, source)
	}
	switch {
	case err == nil, errors.Is(err, bootloader.ErrNoLoader):
		return &source, nil
	case errors.Is(err, bootloader.ErrNoESP), errors.Is(err, fat.ErrNoFAT):
		return nil, nil //nolint:nilnil // documented
	}
	return nil, err
}
