package imaging

import (
	"context"
	"errors"
	"fmt"

	"ironroot/agent/fault"
	"ironroot/storage/block"
	"ironroot/storage/bootloader"
	"ironroot/storage/partition"
)

// Bootloader holds the parameters of install_bootloader.
type Bootloader struct {
	RootUUID, EFISystemPartUUID, PRePBootPartUUID string // "" when null
	TargetBootMode                                string // "bios" or "uefi"
	IgnoreFailure                                 *bool  // nil: the option ignore_bootloader_failure applies
}

// wholeDiskUUID is the root UUID that the protocol uses for whole-disk images on a plain GPT.
const wholeDiskUUID = "0x00000000"

// isPartitionImage reports whether the parameters describe a partition image.
func (b Bootloader) isPartitionImage() bool { return b.RootUUID != "" && b.RootUUID != wholeDiskUUID }

// InstallBootloader makes the root disk bootable. If StartISCSITarget has exported it, that ends first; initiators that
// are still logged in are an error.
//
// If the ramdisk was booted by UEFI, it writes boot entries for the loaders on the EFI system partition. The loaders
// of a partition image are copied there first. A whole-disk image without a loader there is an error, unless the
// instance boots by BIOS. Under BIOS it installs nothing for a whole-disk image, which contains its boot loader; see
// checkKernel for a kernel without support for UEFI. For a partition image without a loader, or under BIOS, it runs
// programs of the image, which requires the option enable_bios_bootloader_install.
func (i *Imager) InstallBootloader(ctx context.Context, b Bootloader) error {
	c := i.o.Config.Get()
	ignore := c.IgnoreBootloaderFailure
	if b.IgnoreFailure != nil {
		ignore = *b.IgnoreFailure
	}
	if err := i.stopISCSITarget(ctx); err != nil {
		return err
	}
	disk, err := i.DeployDisk(ctx, false)
	if err != nil {
		return err
	}
	uefi := bootloader.FirmwareIsUEFI(i.o.System)
	if target := b.TargetBootMode; target == "uefi" && !uefi || target == "bios" && uefi {
		i.o.Log.Warn("boot mode differs from the target's", "device", disk.Path, "target", target, "uefi", uefi)
	}
	if uefi {
		err := i.installEFI(ctx, disk, b)
		switch {
		case err == nil:
			return nil
		case errors.Is(err, bootloader.ErrNoLoader) && (b.isPartitionImage() || b.TargetBootMode == "bios"):
			i.o.Log.Warn("no boot loader on the EFI system partition", "device", disk.Path, "err", err)
		case !ignore || ctx.Err() != nil:
			return err
		default:
			i.o.Log.Error("UEFI boot entry not written, failure ignored", "device", disk.Path, "err", err)
		}
	}
	if !b.isPartitionImage() {
		if err := bootloader.CheckArray(i.o.System, disk); err != nil && !ignore {
			return bootFault(disk, fmt.Errorf("%w; no boot loader was installed on its disks: a whole-disk image "+
				"needs an EFI system partition with a loader, or the UUID of a root with GRUB (image property "+
				"rootfs_uuid)", err))
		}
		if err := i.checkKernel(ctx, disk, b); err != nil {
			if !ignore || ctx.Err() != nil {
				return bootFault(disk, err)
			}
			i.o.Log.Error("UEFI boot entry not written, failure ignored", "device", disk.Path, "err", err)
		}
		i.o.Log.Info("whole-disk image: no boot loader to install", "device", disk.Path)
		return nil
	}
	if c.EnableBIOSBootloaderInstall {
		err = i.installGRUB(ctx, bootloader.InstallGRUB, disk, b, uefi)
	} else {
		err = errDisabled(uefi)
	}
	if err != nil && ignore && ctx.Err() == nil {
		i.o.Log.Error("boot loader not installed, failure ignored", "device", disk.Path, "err", err)
		return nil
	}
	return err
}

// checkKernel returns an error if the machine was booted by UEFI, but its kernel cannot write a boot entry, and the
// disk has no loader that firmware finds without one. For an instance that boots by BIOS, it logs a warning only.
func (i *Imager) checkKernel(ctx context.Context, disk block.Device, b Bootloader) error {
	problem := bootloader.CheckKernel(i.o.System)
	if problem == nil {
		return nil
	}
	loader, err := bootloader.Fallback(ctx, disk.Path, b.EFISystemPartUUID)
	if err != nil && b.TargetBootMode != "bios" {
		return fmt.Errorf("%w: %w", problem, err)
	}
	i.o.Log.Warn("UEFI boot entry not written", "device", disk.Path, "err", problem, "fallback", loader)
	return nil
}

// errDisabled returns the protocol's error for a boot loader that only programs of the image could install. If the
// machine was booted by UEFI, the error explains why its EFI system partition does not suffice.
func errDisabled(uefi bool) error {
	why := ""
	if uefi {
		why = "; the EFI system partition has no boot loader, a partition image must contain it below /boot/efi/EFI " +
			"of its root file system (on Btrfs in the default subvolume)"
	}
	return fault.InvalidImage("Install of legacy BIOS bootloaders disabled by enable_bios_bootloader_install; "+
		"use an image that boots by UEFI, or a whole-disk image%s", why)
}

// installGRUB runs the image's own GRUB with install. Under UEFI it then writes boot entries for the loaders that GRUB
// put on the EFI system partition.
func (i *Imager) installGRUB(
	ctx context.Context, install func(context.Context, bootloader.GRUB) error, disk block.Device, b Bootloader,
	uefi bool,
) error {
	grub := bootloader.GRUB{
		Disk: disk.Path, System: i.o.System, Disks: unprotectedDisks{i.o}, RootUUID: b.RootUUID,
		ESPUUID: b.EFISystemPartUUID, PRePUUID: b.PRePBootPartUUID, UEFI: uefi, Log: i.o.Log,
	}
	array, err := i.bootArray(ctx, disk)
	if err != nil {
		return bootFault(disk, err)
	}
	if array != nil {
		return bootFault(disk, i.installGRUBOnArray(ctx, install, array, grub))
	}
	if err := install(ctx, grub); err != nil {
		return bootFault(disk, err)
	}
	if !uefi || b.EFISystemPartUUID == "" {
		return nil
	}
	return i.installEFI(ctx, disk, b)
}

// installEFI writes UEFI boot entries. If no EFI system partition has a loader, the error wraps
// [bootloader.ErrNoLoader]: the image may boot another way.
func (i *Imager) installEFI(ctx context.Context, disk block.Device, b Bootloader) error {
	array, err := i.bootArray(ctx, disk)
	if err != nil {
		return bootFault(disk, err)
	}
	if err := partition.Sync(ctx, i.o.System, disk.Path); err != nil {
		i.o.Log.Warn("kernel does not see the current partitions", "device", disk.Path, "err", err)
	}
	if b.isPartitionImage() && b.EFISystemPartUUID != "" && !i.hasMovedESP(disk.Path) {
		if _, err := bootloader.KeepEFI(ctx, bootloader.Keep{
			Disk: disk.Path, System: i.o.System, Disks: unprotectedDisks{i.o}, RootUUID: b.RootUUID,
			ESPUUID: b.EFISystemPartUUID, Configure: i.o.Config.Get().EnableBIOSBootloaderInstall,
			Array: array, Log: i.o.Log,
		}); err != nil {
			return bootFault(disk, err)
		}
	}
	if array != nil {
		err = i.installEFIOnArray(ctx, array, b.EFISystemPartUUID)
	} else {
		err = bootloader.InstallEFI(ctx, i.o.System, disk.Path, bootloader.Options{
			ESPUUID: b.EFISystemPartUUID, Efivars: i.o.Efivars, Log: i.o.Log,
		})
	}
	return bootFault(disk, err)
}

// bootFault converts errors of storage/bootloader to faults of the protocol.
func bootFault(disk block.Device, err error) error {
	switch {
	case err == nil, errors.Is(err, context.Canceled):
		return err
	case errors.Is(err, bootloader.ErrNoESP):
		return fault.DeviceNotFound("no EFI system partition on %s: %w", disk.Path, err)
	case errors.Is(err, bootloader.ErrNoRoot):
		return fault.DeviceNotFound("%w", err)
	}
	return fault.CommandExecution(err)
}
