package bootloader

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"regexp"
	"slices"

	"ironroot/storage/efivarfs"
	"ironroot/storage/sysfs"
)

// ErrNotUEFI is returned if the machine was booted by BIOS. Its kernel has no access to UEFI variables then.
var ErrNotUEFI = errors.New("no access to UEFI boot entries: not booted by UEFI")

// RemoveEntries removes every boot entry whose device path as text matches one of the patterns, and removes its number
// from BootOrder. The text follows UEFI 2.10, section 10.6, as efibootmgr 17 prints it:
// `HD(1,GPT,<guid>,0x800,0x14000)/File(\EFI\debian\shimx64.efi)`. Entries that cannot be parsed are kept. Errors wrap
// ErrNotUEFI, efivarfs.ErrNotMounted, or ErrFirmware if a variable could not be changed; matching entries may remain
// then.
func RemoveEntries(ctx context.Context, sys sysfs.Root, patterns []*regexp.Regexp, log *slog.Logger) error {
	if !FirmwareIsUEFI(sys) {
		return ErrNotUEFI
	}
	vars := variables{dir: sys.Sys("firmware/efi/efivars"), log: log}
	if err := efivarfs.CheckMounted(vars.dir); err != nil {
		return fmt.Errorf("UEFI boot entries: %w", err)
	}
	entries, err := vars.bootEntries()
	if err != nil {
		return fmt.Errorf("UEFI boot entries: %w", err)
	}
	var matching []uint16
	for _, n := range sorted(entries) {
		label, path, err := describe(entries[n])
		matches := err == nil &&
			slices.ContainsFunc(patterns, func(p *regexp.Regexp) bool { return p.MatchString(path) })
		if matches {
			matching = append(matching, n)
		}
		log.Info("UEFI boot entry", "entry", bootName(n), "label", label, "path", path, "err", err, "removed", matches)
	}
	err = vars.unorder(matching)
	for _, n := range matching {
		if err == nil {
			err = ctx.Err()
		}
		if err == nil {
			err = vars.remove(bootName(n))
		}
	}
	if err != nil {
		return fmt.Errorf("%w: remove UEFI boot entries: %w", ErrFirmware, err)
	}
	return nil
}

// describe returns the label and the device path of a load option as text.
func describe(option []byte) (label, path string, err error) {
	_, label, nodes, err := splitLoadOption(option)
	if err == nil {
		path, err = pathText(nodes)
	}
	return label, path, err
}

// unorder removes numbers from BootOrder. It is called before the entries are removed: if this is interrupted, the
// next run finds entries that remain, but would not find numbers in BootOrder without an entry.
func (v variables) unorder(numbers []uint16) error {
	order, err := v.bootOrder()
	if err != nil {
		return err
	}
	kept := slices.DeleteFunc(slices.Clone(order), func(n uint16) bool { return slices.Contains(numbers, n) })
	switch len(kept) {
	case len(order):
		return nil // every write wears out the firmware's memory
	case 0:
		return v.remove("BootOrder") // a variable without data does not exist
	}
	_, err = v.writeOrder(kept) // firmware may restore numbers whose entries still exist; those are removed next
	return err
}
