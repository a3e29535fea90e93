package bootloader

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"os"
	"strings"

	"ironroot/storage/block"
	"ironroot/storage/efivarfs"
	"ironroot/storage/fat"
	"ironroot/storage/partition"
	"ironroot/storage/sysfs"
)

// Errors of InstallEFI.
var (
	ErrNoESP    = errors.New("no EFI system partition")
	ErrNoLoader = errors.New("no boot loader on the EFI system partition")
	// ErrSectorSize is returned if an ESP was made for smaller sectors than the disk's.
	ErrSectorSize = errors.New("the kernel cannot mount the EFI system partition")
	ErrFirmware   = errors.New("the firmware refused the boot entry")
	// ErrNoVariables is returned if the machine was booted by UEFI, but the kernel has no access to its variables.
	ErrNoVariables = errors.New("no UEFI boot entry can be written")
)

// Options are the options of InstallEFI.
type Options struct {
	ESPUUID string       // file system UUID or PARTUUID of the ESP, used if no partition has the type of an ESP
	ESP     int          // number of the ESP's partition; 0 means to find it by its type or UUID
	Suffix  string       // added to each label, to distinguish the entries of several disks
	Efivars string       // efivarfs directory; "" means <root>/sys/firmware/efi/efivars
	Log     *slog.Logger // may be nil
}

// InstallEFI writes boot entries for the loaders of the disk. It uses the first EFI system partition whose CSV file
// names a loader, which gets an entry, or that has loaders of the names in loaderNames, each of which gets an entry. If
// there is none, it uses the first one with another loader, and writes an entry for the preferred one: shim,
// systemd-boot, GRUB, the latest unified kernel image in \EFI\Linux, the boot manager of Windows. Each new entry
// becomes the first in BootOrder; older entries with the same label are removed. Errors wrap ErrNoESP, ErrNoLoader,
// ErrSectorSize, ErrNoVariables, or ErrFirmware if a variable could not be written.
func InstallEFI(ctx context.Context, sys sysfs.Root, disk string, o Options) error {
	if err := installEFI(ctx, sys, disk, o); err != nil {
		return fmt.Errorf("UEFI boot entry for %s: %w", disk, err)
	}
	return nil
}

func installEFI(ctx context.Context, sys sysfs.Root, disk string, o Options) error {
	log := o.Log
	if log == nil {
		log = slog.New(slog.DiscardHandler)
	}
	if o.Efivars == "" {
		o.Efivars = sys.Sys("firmware/efi/efivars")
	}
	table, esps, err := readESPs(ctx, disk, o)
	if err != nil {
		return err
	}
	esp, err := chooseESP(disk, esps, table.SectorSize, log)
	if err != nil {
		return err
	}
	if err := efivarfs.CheckMounted(o.Efivars); err != nil {
		return withFallback(fmt.Errorf("%w: %w", ErrNoVariables, err), esp.fallback)
	}
	vars := variables{dir: o.Efivars, log: log}
	for _, loader := range esp.loaders {
		if err := ctx.Err(); err != nil {
			return err
		}
		option := loadOption{
			Attributes: loadOptionActive, Description: loader.label + o.Suffix,
			Disk: hardDrive(table, esp.partition), File: loader.path,
			OptionalData: utf16le(loader.options),
		}
		number, err := vars.install(option)
		if err != nil {
			return withFallback(
				fmt.Errorf("%w: entry %q for %s: %w", ErrFirmware, option.Description, loader.path, err), esp.fallback)
		}
		log.Info("UEFI boot entry written", "device", block.PartitionPath(sys, disk, esp.partition.Number),
			"entry", bootName(number), "label", option.Description, "loader", loader.path)
	}
	return nil
}

// withFallback adds the loader that firmware may start without a boot entry, "" for none, to an error.
func withFallback(err error, loader string) error {
	if loader == "" {
		return err
	}
	return fmt.Errorf("%w (without an entry the firmware may still start %s)", err, loader)
}

// Fallback returns the loader of a disk that firmware starts without a boot entry. The ESPs are found as by FindESP.
// The errors wrap ErrNoESP and ErrNoLoader.
func Fallback(ctx context.Context, disk, espUUID string) (string, error) {
	_, esps, err := readESPs(ctx, disk, Options{ESPUUID: espUUID})
	if err != nil {
		return "", err
	}
	var problems error
	for _, p := range esps {
		esp, err := readLoaders(disk, p, 0)
		if err == nil && esp.fallback != "" {
			return esp.fallback, nil
		}
		if err == nil {
			err = fmt.Errorf(`%w at \EFI\BOOT, where firmware finds it without a boot entry`, ErrNoLoader)
		}
		problems = join(problems, err)
	}
	return "", problems
}

// FindESP finds the EFI system partition of a disk by its type, otherwise by the UUID of a partition or of its FAT file
// system. Of several, it returns the one that InstallEFI would use if sectors of all sizes were possible, or the first
// if none has a loader. The error wraps ErrNoESP if there is none.
func FindESP(ctx context.Context, disk, uuid string) (partition.Partition, error) {
	_, esps, err := readESPs(ctx, disk, Options{ESPUUID: uuid})
	if err != nil {
		return partition.Partition{}, err
	}
	esp, err := chooseESP(disk, esps, 0, slog.New(slog.DiscardHandler))
	if err != nil {
		return esps[0], nil //nolint:nilerr // documented
	}
	return esp.partition, nil
}

// CheckLoaders returns an error that wraps ErrNoLoader if the ESP, a partition of the disk, has no boot loader.
func CheckLoaders(disk string, esp partition.Partition) error {
	_, err := readLoaders(disk, esp, 0)
	return err
}

// chooseESP returns the ESP that InstallEFI uses; sector is an argument of readLoaders. ESPs that cannot be read are
// logged and skipped; if none has a loader, the error names all of them.
func chooseESP(disk string, esps []partition.Partition, sector int64, log *slog.Logger) (espContent, error) {
	var chosen espContent
	var problems error
	for _, p := range esps {
		esp, err := readLoaders(disk, p, sector)
		if err != nil {
			problems = join(problems, err)
			continue
		}
		if len(chosen.loaders) == 0 || !esp.other {
			chosen = esp
		}
		if !esp.other {
			break
		}
	}
	if len(chosen.loaders) == 0 {
		return espContent{}, problems
	}
	if problems != nil {
		log.Warn("EFI system partition skipped", "device", disk, "err", problems)
	}
	return chosen, nil
}

// join returns the errors as one line. The first may be nil.
func join(first, second error) error {
	if first == nil {
		return second
	}
	return fmt.Errorf("%w; %w", first, second)
}

// readESPs reads the partition table of a disk and finds its EFI system partitions. It returns at least one.
func readESPs(ctx context.Context, disk string, o Options) (*partition.Table, []partition.Partition, error) {
	table, err := partition.Read(ctx, disk)
	if err != nil {
		return nil, nil, fmt.Errorf("%w: %w", ErrNoESP, err)
	}
	if o.ESP == 0 {
		esps, err := findESPs(disk, table, o.ESPUUID)
		return table, esps, err
	}
	for _, p := range table.Partitions {
		if p.Number == o.ESP {
			return table, []partition.Partition{p}, nil
		}
	}
	return nil, nil, fmt.Errorf("%w: none of %d partitions has the number %d", ErrNoESP, len(table.Partitions), o.ESP)
}

// findESP returns the first of findESPs.
func findESP(disk string, table *partition.Table, uuid string) (partition.Partition, error) {
	esps, err := findESPs(disk, table, uuid)
	if err != nil {
		return partition.Partition{}, err
	}
	return esps[0], nil
}

// findESPs finds the EFI system partitions by their type, otherwise one by the UUID of a partition or of its FAT file
// system.
func findESPs(disk string, table *partition.Table, uuid string) (esps []partition.Partition, err error) {
	for _, p := range table.Partitions {
		if p.Type == partition.TypeESP || p.Type == partition.TypeMBRESP {
			esps = append(esps, p)
		}
	}
	if len(esps) > 0 {
		return esps, nil
	}
	if uuid == "" {
		return nil, fmt.Errorf("%w: none of %d partitions has its type", ErrNoESP, len(table.Partitions))
	}
	f, err := os.Open(disk)
	if err != nil {
		return nil, err
	}
	defer f.Close() //nolint:errcheck // only read
	for _, p := range table.Partitions {
		if strings.EqualFold(p.UUID, uuid) {
			return []partition.Partition{p}, nil
		}
		tree, err := fat.Open(io.NewSectionReader(f, p.Start, p.Size))
		if err == nil && strings.EqualFold(tree.Serial(), uuid) {
			return []partition.Partition{p}, nil
		}
	}
	return nil, fmt.Errorf("%w: none of %d partitions has its type or the UUID %s",
		ErrNoESP, len(table.Partitions), uuid)
}

// FirmwareIsUEFI reports whether the machine was booted by UEFI firmware.
func FirmwareIsUEFI(sys sysfs.Root) bool {
	info, err := os.Stat(sys.Sys("firmware/efi"))
	return err == nil && info.IsDir()
}

// CheckKernel returns an error that wraps ErrNoVariables if the machine was booted by UEFI, but its kernel does not
// know it: a kernel for x86 without support for UEFI. The boot loader has left its signature in struct efi_info of
// struct boot_params (Documentation/arch/x86/zero-page.rst of Linux).
func CheckKernel(sys sysfs.Root) error {
	const offset = 0x1c0
	data, err := os.ReadFile(sys.Sys("kernel/boot_params/data"))
	if errors.Is(err, fs.ErrNotExist) {
		return nil // another architecture
	}
	if err != nil {
		return err
	}
	if len(data) < offset+4 || FirmwareIsUEFI(sys) {
		return nil
	}
	if signature := string(data[offset : offset+4]); signature == "EL32" || signature == "EL64" {
		return fmt.Errorf("%w: booted by UEFI (%s), but the kernel does not support UEFI", ErrNoVariables, signature)
	}
	return nil
}
