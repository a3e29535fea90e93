// Package erase destroys the data of block devices: the metadata alone (partition tables and signatures), or
// everything by the best method the device has. What it returns is the method that really ran.
package erase

import (
	"context"
	"errors"

	"ironroot/storage/block"
)

// Method names how a device was erased.
type Method string

// The methods, from the strongest to the weakest.
const (
	NVMeCrypto   Method = "nvme-format-crypto"
	NVMeUser     Method = "nvme-format-user"
	ATAEnhanced  Method = "ata-secure-erase-enhanced"
	ATAErase     Method = "ata-secure-erase"
	DiscardZero  Method = "discard-zero"
	Overwrite    Method = "overwrite"
	MetadataOnly Method = "metadata"
)

// Errors of this package.
var (
	ErrReadOnly    = errors.New("device is read-only")
	ErrProtected   = errors.New("device holds a shared file system")
	ErrUnsupported = errors.New("method not supported by the device")
)

// Options of Full.
type Options struct {
	Iterations        int                     // random passes of an overwrite
	Zeroize           bool                    // a last pass of zeros
	NVMe              bool                    // use NVMe format where the device has it
	ATA               bool                    // use ATA secure erase where the device has it
	ContinueOnFailure bool                    // overwrite where a secure erase was tried and failed
	Progress          func(done, total int64) // bytes, over all passes; may be nil
}

// Metadata removes partition tables, file system, RAID and volume signatures from a device and its partitions.
func Metadata(ctx context.Context, sys block.System, device string) error {
	return errors.New("erase: not yet")
}

// Full erases all data of a device and tells how.
func Full(ctx context.Context, sys block.System, device block.Device, o Options) (Method, error) {
	return "", errors.New("erase: not yet")
}

// ReadOnly tells whether the kernel refuses writes to the device.
func ReadOnly(sys block.System, name string) (bool, error) {
	return false, errors.New("erase: not yet")
}

// ParametersFloppy tells whether the device is the conductor's virtual floppy (file system label ir-vfd-dev).
func ParametersFloppy(ctx context.Context, sys block.System, device block.Device) (bool, error) {
	return false, errors.New("erase: not yet")
}

// RAIDMember tells whether the device or one of its partitions belongs to a Linux software RAID.
func RAIDMember(ctx context.Context, sys block.System, device string) (bool, error) {
	return false, errors.New("erase: not yet")
}

// Guard returns an error wrapping ErrProtected that names every device holding a shared file system (GPFS, VMFS,
// gfs2). It is called for all devices before the first is erased.
func Guard(ctx context.Context, sys block.System, devices []string) error {
	return errors.New("erase: not yet")
}

// Pstore removes every entry of the mounted pstore file systems. It does nothing where there is none.
func Pstore(ctx context.Context, sys block.System) error { return errors.New("erase: not yet") }
