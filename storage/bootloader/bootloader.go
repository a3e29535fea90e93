// Package bootloader makes a deployed disk bootable: it looks for loaders on the EFI system partition and writes UEFI
// boot entries through efivarfs (UEFI 2.10, sections 3.1.3 and 10.3).
package bootloader

import (
	"context"
	"errors"
	"log/slog"
	"os"

	"ironroot/storage/block"
)

// Errors of InstallEFI.
var (
	ErrNoESP    = errors.New("no EFI system partition")
	ErrNoLoader = errors.New("no boot loader on the EFI system partition")
)

// Options of InstallEFI.
type Options struct {
	ESPUUID string // file system UUID or PARTUUID of the ESP, used where no partition has the type of one
	Efivars string // efivarfs folder; "" means <root>/sys/firmware/efi/efivars
	Log     *slog.Logger
}

// Entry is a boot entry that was written.
type Entry struct {
	Number uint16 // of Boot####
	Label  string
	Loader string // path on the ESP with backslashes, "\EFI\debian\shimx64.efi"
}

// Result says what InstallEFI did.
type Result struct {
	ESP     string   // device path of the EFI system partition
	Entries []Entry  // in the order written; the last is the first in BootOrder
	Removed []uint16 // entries that had one of the labels
}

// InstallEFI writes a boot entry for every loader that it finds on the disk's EFI system partition. Each new entry
// becomes the first in BootOrder; older entries with the same label are removed.
func InstallEFI(ctx context.Context, sys block.System, disk string, o Options) (Result, error) {
	return Result{}, errors.New("bootloader: not yet")
}

// FirmwareIsUEFI tells whether the machine was booted by UEFI firmware.
func FirmwareIsUEFI(sys block.System) bool {
	info, err := os.Stat(sys.Sys("firmware/efi"))
	return err == nil && info.IsDir()
}
