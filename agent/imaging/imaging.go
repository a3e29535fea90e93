package imaging

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"reflect"
	"sync"

	"ironroot/agent/config"
	"ironroot/agent/fault"
	"ironroot/agent/journal"
	"ironroot/agent/node"
	"ironroot/agent/softraid"
	"ironroot/agent/status"
	"ironroot/storage/block"
	"ironroot/storage/configdrive"
	"ironroot/storage/image"
	"ironroot/storage/image/checksum"
	"ironroot/storage/image/device"
	"ironroot/storage/image/fetch"
	"ironroot/storage/iscsitarget"
	"ironroot/storage/partition"
	"ironroot/storage/sysfs"
)

// Options are the options of an Imager.
type Options struct {
	Config *config.Live
	Node   *node.Cache
	// Disks lists the disks that the hardware managers report.
	Disks block.Lister
	// Hardware waits for disks and assembles arrays; nil does neither.
	Hardware Hardware
	// Ironic looks nodes up; nil looks none up.
	Ironic NodeRefresher
	System sysfs.Root
	Log    *slog.Logger
	// Board shows the progress of work on a device; nil shows nothing.
	Board status.Trackers
	// Journal redacts the secrets of images; may be nil.
	Journal *journal.Journal
	// Efivars is the directory of EFI variables, "" for the default.
	Efivars string
	// Targets, when set, exports disks as iSCSI targets.
	Targets Exporter
}

// Hardware is the part of the hardware managers that an Imager uses.
type Hardware interface {
	// WaitDisks waits until the disks that the node needs have appeared or a time limit has passed.
	WaitDisks(ctx context.Context, n *node.Node) error
	// AssembleVolumes assembles the arrays of a node's raid_config that can be assembled.
	AssembleVolumes(ctx context.Context, n *node.Node) (softraid.Assembled, error)
	// ReleaseVolumes stops the arrays that AssembleVolumes has started, except the one with the device path.
	ReleaseVolumes(ctx context.Context, volumes softraid.Assembled, except string) error
}

// NodeRefresher looks up the node of this machine.
type NodeRefresher interface {
	// Refresh looks the node up again and stores it in the cache.
	Refresh(ctx context.Context) error
}

// Exporter exports one disk at a time: see [iscsitarget.Exporter].
type Exporter interface {
	Start(ctx context.Context, x iscsitarget.Export, prepare func(context.Context) error) error
	Stop(ctx context.Context) error
	Forget()
	Device() string
}

// Imager writes images to the node's root disk and remembers the last one. It is safe for concurrent use, but only one
// write may run at a time.
type Imager struct {
	o       Options
	runtime containers

	mu      sync.Mutex
	uuids   map[string]any
	written written
	// movedESP is the array whose EFI system partition was moved to its disks since the image was written, "" for none.
	movedESP string
}

// written describes the last image that can be skipped if it is requested again, and the partition table after it was
// written.
type written struct {
	id, device string
	checksum   checksum.Sum
	partition  PartitionInfo    // of a partition image
	layout     partition.Layout // the planned layout of a partition image
	table      *partition.Table
}

// same reports whether both describe the same image on the same disk with the same layout.
func (w written) same(other written) bool {
	return w.id == other.id && w.device == other.device && w.checksum == other.checksum &&
		w.partition == other.partition && reflect.DeepEqual(w.layout, other.layout)
}

// New returns an Imager.
func New(o Options) *Imager {
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	if o.Board == nil {
		o.Board = (*status.Board)(nil)
	}
	if o.Disks == nil {
		o.Disks = block.MachineDisks{System: o.System}
	}
	return &Imager{o: o, runtime: machineRuntime{}, uuids: map[string]any{}}
}

// outcome is the result of a deployment.
type outcome struct {
	device  string
	present bool   // the image was already on the disk
	uuids   string // words of the protocol's result text
}

// text returns the protocol's result text.
func (o outcome) text(info ImageInfo, done string) string {
	return fmt.Sprintf("image (%s) %s device %s %s", info.ID, done, o.device, o.uuids)
}

// Prepare writes the image to the root disk, then the config drive: configDrive or, if that is "", the one in info. It
// returns the protocol's result text, which names the image and the device. Errors are faults of the protocol.
func (i *Imager) Prepare(ctx context.Context, info ImageInfo, configDrive string) (string, error) {
	o, err := i.prepare(ctx, info, configDrive)
	if err != nil {
		return "", err
	}
	return o.text(info, "written to"), nil
}

// Cache is Prepare for the command cache_image: it does not write an image again that is on the disk, also if it is
// streamed, unless force is set.
func (i *Imager) Cache(ctx context.Context, info ImageInfo, configDrive string, force bool) (string, error) {
	if info.StreamRaw = false; force {
		i.forget()
	}
	o, err := i.prepare(ctx, info, configDrive)
	switch {
	case err != nil:
		return "", err
	case o.present:
		return o.text(info, "already present on"), nil
	}
	return o.text(info, "cached to"), nil
}

func (i *Imager) prepare(ctx context.Context, info ImageInfo, configDrive string) (outcome, error) {
	disk, err := i.DeployDisk(ctx, true)
	if err != nil {
		return outcome{}, err
	}
	if err := writable(disk); err != nil {
		return outcome{}, err
	}
	if err := i.checkBootable(ctx, disk); err != nil {
		return outcome{}, err
	}
	src, err := i.source(ctx, info)
	if err != nil {
		return outcome{}, imageFault(info.ID, disk.Path, err)
	}
	defer src.Fetch.Client.CloseIdleConnections()
	if configDrive == "" {
		configDrive = info.ConfigDrive
	}
	// Load the config drive first: if it is broken or missing, the disk keeps its content.
	drive, err := i.loadConfigDrive(ctx, configDrive, disk)
	if err != nil {
		return outcome{}, err
	}
	if info.Partition != nil {
		return i.preparePartitions(ctx, disk, info, src, drive)
	}
	now := written{id: info.ID, device: disk.Path, checksum: src.Checksum}
	present := i.isWritten(ctx, now)
	if present {
		i.o.Log.Info("image is already on the disk, not written again", "image", info.ID, "device", disk.Path)
	} else if err := i.write(ctx, disk, info, src); err != nil {
		return outcome{}, err
	}
	if _, err := i.checkTable(ctx, disk.Path); err != nil {
		return outcome{}, err
	}
	if drive != nil {
		if err := i.writeConfigDrive(ctx, disk.Path, drive); err != nil {
			return outcome{}, err
		}
	}
	o, err := i.finish(ctx, info, now)
	o.present = present
	return o, err
}

// write writes the image to the disk and makes the kernel read the new partition table.
func (i *Imager) write(ctx context.Context, d block.Device, info ImageInfo, src image.Source) error {
	disk, o := d.Path, i.imageOptions()
	o.DiskSectorSize = d.LogicalSector
	i.forget()
	if err := partition.Release(ctx, i.o.System, disk); err != nil {
		return fault.ImageWrite(disk, err)
	}
	if err := i.stream(ctx, disk, info, src, o); err != nil {
		return imageFault(info.ID, disk, err)
	}
	// An image is rarely as long as the disk, and its backup GPT belongs at the end of the disk. Failure is not fatal,
	// as in the protocol: the image may boot nevertheless.
	if moved, err := partition.RepairBackup(ctx, disk); err != nil {
		i.o.Log.Warn("backup GPT not moved", "device", disk, "err", err)
	} else if moved {
		i.o.Log.Info("backup GPT moved to the end of the disk", "device", disk)
	}
	if err := partition.Sync(ctx, i.o.System, disk); err != nil {
		i.o.Log.Warn("kernel does not see the new partitions", "device", disk, "err", err)
	}
	return nil
}

// stream writes the image to a disk or partition and shows its progress.
func (i *Imager) stream(
	ctx context.Context, device string, info ImageInfo, src image.Source, o image.Options,
) error {
	progress := &image.Progress{}
	o.Progress = progress
	i.o.Log.Info("writing image", "image", info.ID, "device", device, "format", src.Format)
	stop, result := i.showProgress(ctx, device, progress), ""
	defer func() { stop(result) }()
	report, err := image.Write(ctx, device, src, o)
	if err != nil {
		return err
	}
	result = resultText(report, device)
	i.o.Log.Info("image is on the disk", "image", info.ID, "device", device,
		"duration", report.Duration.Round(durationStep), "rate", status.Rate(report.Bytes, report.Duration))
	return nil
}

// imageOptions returns the configured restrictions of images, and the limit of their memory.
func (i *Imager) imageOptions() image.Options {
	c := i.o.Config.Get()
	permitted := append([]string{}, c.PermittedImageFormats...) // never nil, which would permit all
	return image.Options{
		Log: i.o.Log, PermittedFormats: permitted, SkipFormatInspection: c.DisableDeepImageInspection,
		UnpackMemory: i.unpackMemory(),
	}
}

// unpackMemory returns the number of bytes that the window or dictionary of a compressed image may need: a quarter of
// the available memory. It returns 0 if that is unknown.
func (i *Imager) unpackMemory() int64 {
	available, err := i.o.System.AvailableMemory()
	if err != nil {
		i.o.Log.Warn("available memory unknown, windows of compressed images limited", "err", err)
		return 0
	}
	return available / 4
}

// checkTable reads the partition table and fails if it has no partition.
func (i *Imager) checkTable(ctx context.Context, disk string) (*partition.Table, error) {
	table, err := partition.Read(ctx, disk)
	if err != nil {
		return nil, fault.Deployment("no valid partition table found on %s after writing the image: %w", disk, err)
	}
	if len(table.Partitions) == 0 {
		return nil, fault.Deployment("the %s partition table on %s has no partition after writing the image",
			table.Scheme, disk)
	}
	return table, nil
}

// loadConfigDrive fetches and unpacks a config drive that can be written to the disk. It returns nil if source is "".
func (i *Imager) loadConfigDrive(ctx context.Context, source string, disk block.Device) ([]byte, error) {
	if source == "" {
		return nil, nil
	}
	client, err := i.client(Proxies{}) // proxies of info do not apply to config drives
	if err != nil {
		return nil, fault.Deployment("config drive: %w", err)
	}
	defer client.CloseIdleConnections()
	drive, err := configdrive.Load(ctx, source, driveOpener{client, i.o.Config.Get()})
	if err != nil {
		return nil, fault.Deployment("config drive: %w", err)
	}
	// Whether the drive can be written to the disk is checked now: after the image it would be too late.
	if _, err := configdrive.Size(drive, disk.LogicalSector, i.driveOptions()); err != nil {
		return nil, fault.Deployment("check config drive for %s: %w", disk.Path, err)
	}
	return drive, nil
}

func (i *Imager) writeConfigDrive(ctx context.Context, disk string, drive []byte) error {
	path, err := configdrive.Write(ctx, i.o.System, disk, drive, i.driveOptions())
	if err != nil {
		return fault.Deployment("write config drive to %s: %w", disk, err)
	}
	i.o.Log.Info("config drive written", "device", path, "bytes", len(drive))
	return nil
}

// finish records what was written and returns the result.
func (i *Imager) finish(ctx context.Context, info ImageInfo, now written) (outcome, error) {
	table, err := i.checkTable(ctx, now.device)
	if err != nil {
		return outcome{}, err
	}
	now.table = table
	root := fmt.Sprintf("0x%08x", table.DiskID)
	i.mu.Lock()
	defer i.mu.Unlock()
	i.uuids = map[string]any{"root uuid": root}
	if !streams(info) {
		i.written = now
	}
	return outcome{device: now.device, uuids: "root_uuid=" + root}, nil
}

// streams reports whether the protocol requires that the image is written on every call. All images but raw streams
// count as cached by their id.
func streams(info ImageInfo) bool { return info.StreamRaw && info.Source.Format == "raw" }

// isWritten reports whether the last image is now and its partition table is still on the disk. After an erase it
// returns false.
func (i *Imager) isWritten(ctx context.Context, now written) bool {
	i.mu.Lock()
	last := i.written
	i.mu.Unlock()
	if last.table == nil || !last.same(now) {
		return false
	}
	table, err := partition.Read(ctx, now.device)
	return err == nil && reflect.DeepEqual(table, last.table)
}

// forget forgets the image that was written last, also by an initiator: the disk gets another content.
func (i *Imager) forget() {
	if i.o.Targets != nil {
		i.o.Targets.Forget()
	}
	i.forgetWritten()
}

func (i *Imager) forgetWritten() {
	i.mu.Lock()
	defer i.mu.Unlock()
	i.written, i.uuids, i.movedESP = written{}, map[string]any{}, ""
}

// PartitionUUIDs returns a copy of the UUIDs that the last Prepare found on the disk. It is empty before.
func (i *Imager) PartitionUUIDs() map[string]any {
	i.mu.Lock()
	defer i.mu.Unlock()
	uuids := make(map[string]any, len(i.uuids))
	for key, value := range i.uuids {
		uuids[key] = value
	}
	return uuids
}

// imageFault converts errors of storage/image to faults of the protocol.
func imageFault(id, disk string, err error) error {
	var (
		download *fetch.DownloadError
		timeout  *fetch.TimeoutError
		slow     *fetch.SlowError
		checksum *checksum.MismatchError
		format   *image.FormatError
		noDisk   *image.NoDiskError
		small    *device.TooSmallError
		write    *device.WriteError
		own      *fault.Error
	)
	switch {
	case errors.As(err, &own):
		return own
	case errors.As(err, &timeout), errors.As(err, &slow):
		return fault.ImageDownloadTimeout(id, err)
	case errors.As(err, &checksum):
		return fault.ImageChecksum(checksum.URL, id, checksum.Want, checksum.Got)
	case errors.As(err, &format):
		return fault.InvalidImage("%w", err)
	case errors.As(err, &noDisk):
		return fault.Deployment("no valid partition table for %s: %w", disk, err) // as in checkTable
	case errors.As(err, &small), errors.As(err, &write):
		return fault.ImageWrite(disk, err)
	case errors.As(err, &download):
		// As in ironic-python-agent, each status but 200 is fatal, also 204 and 206.
		if download.Fatal && download.Status != 0 && download.Status != http.StatusOK {
			return fault.ImageDownloadFatal(id, err)
		}
		return fault.ImageDownload(id, err)
	case errors.Is(err, context.Canceled):
		return err
	}
	return fault.REST("image %s: %w", id, err)
}
