// Package bootloader makes a deployed disk bootable: it finds loaders on the EFI system partition and writes UEFI boot
// entries through efivarfs (UEFI 2.10, sections 3.1.3, 3.3 and 10.3). It also removes boot entries.
//
// The ESP is read by a FAT reader of this module's own, so that neither a kernel module nor a mount is needed and the
// kernel parses nothing that came with a whole-disk image. A partition image keeps its loaders on its root file system;
// those are copied onto the ESP, for which the kernel mounts both, see [mounted]. Nothing from the disk is run but by
// InstallGRUB, in the subpackage chroot.
package bootloader

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"strings"

	"ironroot/storage/block"
	"ironroot/storage/fat"
	"ironroot/storage/partition"
)

// Errors of InstallEFI.
var (
	ErrNoESP    = errors.New("no EFI system partition")
	ErrNoLoader = errors.New("no boot loader on the EFI system partition")
	ErrFirmware = errors.New("the firmware refused the boot entry")
)

// Options are the options of InstallEFI.
type Options struct {
	ESPUUID string       // file system UUID or PARTUUID of the ESP, used if no partition has the type of an ESP
	Efivars string       // efivarfs directory; "" means <root>/sys/firmware/efi/efivars
	Log     *slog.Logger // may be nil
}

// Entry is a boot entry that was written.
type Entry struct {
	Number uint16 // of Boot####
	Label  string
	Loader string // path on the ESP with backslashes, `\EFI\debian\shimx64.efi`
}

// Result says what InstallEFI did.
type Result struct {
	ESP     string   // device path of the EFI system partition
	Entries []Entry  // in the order written; the last is the first in BootOrder
	Removed []uint16 // entries that had one of the labels
}

// InstallEFI writes a boot entry for every loader that it finds on the disk's EFI system partition. Each new entry
// becomes the first in BootOrder; older entries with the same label are removed. Errors wrap ErrNoESP, ErrNoLoader, and
// ErrFirmware where a variable could not be written.
func InstallEFI(ctx context.Context, sys block.System, disk string, o Options) (Result, error) {
	result, err := installEFI(ctx, sys, disk, o)
	if err != nil {
		return result, fmt.Errorf("UEFI boot entry for %s: %w", disk, err)
	}
	return result, nil
}

func installEFI(ctx context.Context, sys block.System, disk string, o Options) (Result, error) {
	log := o.Log
	if log == nil {
		log = slog.New(slog.DiscardHandler)
	}
	if o.Efivars == "" {
		o.Efivars = sys.Sys("firmware/efi/efivars")
	}
	table, err := partition.Read(ctx, disk)
	if err != nil {
		return Result{}, fmt.Errorf("%w: %w", ErrNoESP, err)
	}
	esp, err := findESP(disk, table, o.ESPUUID)
	if err != nil {
		return Result{}, err
	}
	result := Result{ESP: sys.PartitionPath(disk, esp.Number)}
	loaders, fallback, err := readLoaders(disk, esp)
	if err != nil {
		return result, err
	}
	vars := variables{dir: o.Efivars, log: log}
	for _, loader := range loaders {
		if err := ctx.Err(); err != nil {
			return result, err
		}
		option := loadOption{Attributes: loadOptionActive, Description: loader.label, Disk: hardDrive(table, esp), File: loader.path}
		number, removed, err := vars.install(option)
		result.Removed = append(result.Removed, removed...)
		if err != nil {
			err = fmt.Errorf("%w: entry %q for %s: %w", ErrFirmware, loader.label, loader.path, err)
			if fallback != "" {
				err = fmt.Errorf("%w (without an entry the firmware may still start %s)", err, fallback)
			}
			return result, err
		}
		result.Entries = append(result.Entries, Entry{Number: number, Label: loader.label, Loader: loader.path})
		log.Info("wrote UEFI boot entry", "device", disk, "entry", fmt.Sprintf("Boot%04X", number), "label", loader.label,
			"loader", loader.path)
	}
	return result, nil
}

// findESP finds the EFI system partition by its type, otherwise by the UUID of a partition or of its FAT file system.
func findESP(disk string, table *partition.Table, uuid string) (partition.Partition, error) {
	for _, p := range table.Partitions {
		if p.Type == partition.TypeESP || p.Type == partition.TypeMBRESP {
			return p, nil
		}
	}
	if uuid == "" {
		return partition.Partition{}, fmt.Errorf("%w: none of %d partitions has its type",
			ErrNoESP, len(table.Partitions))
	}
	f, err := os.Open(disk)
	if err != nil {
		return partition.Partition{}, err
	}
	defer f.Close() //nolint:errcheck // only read
	for _, p := range table.Partitions {
		if strings.EqualFold(p.UUID, uuid) {
			return p, nil
		}
		if tree, err := fat.Open(io.NewSectionReader(f, p.Start, p.Size)); err == nil && strings.EqualFold(tree.Serial(), uuid) {
			return p, nil
		}
	}
	return partition.Partition{}, fmt.Errorf("%w: none of %d partitions has its type or the UUID %s",
		ErrNoESP, len(table.Partitions), uuid)
}

// FirmwareIsUEFI reports whether the machine was booted by UEFI firmware.
func FirmwareIsUEFI(sys block.System) bool {
	info, err := os.Stat(sys.Sys("firmware/efi"))
	return err == nil && info.IsDir()
}
