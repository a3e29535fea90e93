// Package imaging puts an operating system onto the machine: it is what the commands prepare_image and
// install_bootloader and the step write_image do. It reads the protocol's image_info, picks the root disk, has the image
// written, and finishes the disk with config drive and boot entry.
//
// Whole-disk images only; partition images are refused.
package imaging

import (
	"context"
	"encoding/json"
	"errors"
	"log/slog"

	"ironroot/agent/config"
	"ironroot/agent/node"
	"ironroot/storage/block"
)

// Options are what the Imager works with.
type Options struct {
	Config *config.Live
	Node   *node.Cache
	// Disks lists the disks as the hardware managers see them.
	Disks func(ctx context.Context) ([]block.Device, error)
	// WaitDisks, when set, waits until the disks the node needs have appeared, or gives up in time.
	WaitDisks func(ctx context.Context, n *node.Node) error
	// Refresh, when set, looks the node up again and puts it into Node.
	Refresh func(ctx context.Context) error
	System  block.System
	Log     *slog.Logger
	// Efivars is the folder of EFI variables, "" for the machine's own.
	Efivars string
}

// Imager writes images to the node's root disk and remembers what it wrote.
type Imager struct{ o Options }

// New returns an Imager.
func New(o Options) *Imager { return &Imager{o: o} }

// ImageInfo is the protocol's image_info, checked.
type ImageInfo struct {
	ID   string
	URLs []string
}

// ParseImageInfo checks the protocol's image_info. Every error is a fault of code 400 that names the field.
func ParseImageInfo(raw json.RawMessage, md5Enabled bool) (ImageInfo, error) {
	return ImageInfo{}, errors.New("not there yet")
}

// Prepare writes the image to the root disk, then the config drive (when configDrive is "" the one in info, if any). The
// text it returns says what was written where, in the protocol's words.
func (i *Imager) Prepare(ctx context.Context, info ImageInfo, configDrive string) (string, error) {
	return "", errors.New("not there yet")
}

// PartitionUUIDs returns what the last Prepare found on the disk, empty before.
func (i *Imager) PartitionUUIDs() map[string]any { return map[string]any{} }

// RootDisk picks the disk an operating system goes to. With refresh, a cached node without hints is looked up again first.
func (i *Imager) RootDisk(ctx context.Context, refresh bool) (block.Device, error) {
	return block.Device{}, errors.New("not there yet")
}

// Bootloader are the parameters of install_bootloader.
type Bootloader struct {
	RootUUID, EFISystemPartUUID, PRePBootPartUUID string // "" when null
	TargetBootMode                                string // "bios" or "uefi"
	IgnoreFailure                                 *bool  // nil: the option ignore_bootloader_failure decides
}

// InstallBootloader makes the firmware start what is on the root disk.
func (i *Imager) InstallBootloader(ctx context.Context, b Bootloader) error {
	return errors.New("not there yet")
}
