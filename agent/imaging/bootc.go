package imaging

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"slices"
	"time"

	"golang.org/x/sys/unix"

	"ironroot/agent/container"
	"ironroot/agent/fault"
	"ironroot/internal/oslo"
	"ironroot/storage/block"
	"ironroot/storage/bootloader"
	"ironroot/storage/growfs"
	"ironroot/storage/image/fetch"
	"ironroot/storage/partition"
)

// BootableContainer describes a container image whose program bootc installs it on a disk.
type BootableContainer struct {
	Source         string // reference of the image, as Ironic sent it
	AuthorizedKeys string // of the user root, "" for none
	PullSecret     string // as Ironic sent it, "" for none
	ConfigDrive    string // "" for none
}

const (
	// layoutDir and keysFile are paths in the container.
	layoutDir = "/var/tmp/ironroot-image"
	keysFile  = "/run/ironroot/authorized_keys"
	// unusedMiB is the space that bootc leaves: for the ESP, and for the config drive that is added afterwards.
	unusedMiB   = 768
	bytesPerMiB = 1 << 20
	// maxKeysBytes limits the authorized keys.
	maxKeysBytes = 1 << 20
)

// ParseBootableContainer returns the container image of the command and the step execute_bootc_install. The errors are
// faults that name the parameter.
func ParseBootableContainer(
	source, instanceInfo, pullSecret, configDrive json.RawMessage,
) (BootableContainer, error) {
	var c BootableContainer
	for _, p := range []struct {
		name string
		raw  json.RawMessage
		into *string
	}{
		{"image_source", source, &c.Source},
		{"pull secret", pullSecret, &c.PullSecret},
		{"configdrive", configDrive, &c.ConfigDrive},
	} {
		if absent(p.raw) {
			continue
		}
		if err := json.Unmarshal(p.raw, p.into); err != nil { // the error could contain the secret
			return c, fault.InvalidCommandParams("%s must be a string", p.name)
		}
	}
	if c.Source == "" {
		return c, fault.InvalidCommandParams("image_source is missing")
	}
	info := map[string]json.RawMessage{}
	if !absent(instanceInfo) {
		if err := json.Unmarshal(instanceInfo, &info); err != nil {
			return c, fault.InvalidCommandParams("instance_info must be an object")
		}
	}
	if raw := info["bootc_authorized_keys"]; !absent(raw) {
		if err := json.Unmarshal(raw, &c.AuthorizedKeys); err != nil {
			return c, fault.InvalidCommandParams("instance_info 'bootc_authorized_keys' must be a string")
		}
		if len(c.AuthorizedKeys) > maxKeysBytes {
			return c, fault.InvalidCommandParams("instance_info 'bootc_authorized_keys' has %d bytes, want at most %d",
				len(c.AuthorizedKeys), maxKeysBytes)
		}
	}
	if raw := info["bootc_tpm2_luks"]; !absent(raw) {
		var encrypt, ok bool
		var text string
		if ok = json.Unmarshal(raw, &encrypt) == nil; !ok && json.Unmarshal(raw, &text) == nil {
			encrypt, ok = oslo.ParseBool(text)
		}
		if !ok {
			return c, fault.InvalidCommandParams("instance_info 'bootc_tpm2_luks' must be a boolean")
		}
		if encrypt { // needs the device mapper, which reaches every disk
			return c, fault.InvalidCommandParams("instance_info 'bootc_tpm2_luks' is not supported: containers have " +
				"neither the device mapper nor the TPM")
		}
	}
	return c, nil
}

// bundle is the part of [container.Bundle] that an Imager uses: a container image that is ready to run.
type bundle interface {
	Reserved() int64
	Run(ctx context.Context, s container.Spec) error
	Close(ctx context.Context) error
}

// containers is the container runtime, and grows file systems.
type containers interface {
	resolve(ctx context.Context, o fetch.Options, text, secret string) (*container.Image, error)
	prepare(ctx context.Context, image *container.Image, o container.Options) (bundle, error)
	growFS(ctx context.Context, device string) error
}

// machineRuntime implements containers by this machine.
type machineRuntime struct{}

func (machineRuntime) resolve(
	ctx context.Context, o fetch.Options, text, secret string,
) (*container.Image, error) {
	return container.Resolve(ctx, o, text, secret)
}

func (machineRuntime) prepare(ctx context.Context, image *container.Image, o container.Options) (bundle, error) {
	return container.Prepare(ctx, image, o)
}

func (machineRuntime) growFS(ctx context.Context, device string) error {
	return growfs.Grow(ctx, device)
}

// InstallContainer installs a bootable container on the root disk: it runs the program bootc of the image, and adds the
// config drive. It returns the protocol's result text, which names the image and the device. Errors are faults of the
// protocol.
//
// The image is in memory or, if that does not suffice, at the end of the root disk until the installation is complete.
func (i *Imager) InstallContainer(ctx context.Context, c BootableContainer) (string, error) {
	if i.o.Config.Get().DisableBootcDeploy {
		return "", fault.CommandExecution(errors.New("deployment of bootable containers is disabled by the option " +
			"disable_bootc_deploy"))
	}
	if i.o.Journal != nil {
		i.o.Journal.Redact(c.PullSecret)
		i.o.Journal.RedactURLs(c.ConfigDrive)
	}
	disk, err := i.DeployDisk(ctx, true)
	if err != nil {
		return "", err
	}
	if err := writable(disk); err != nil {
		return "", err
	}
	// bootc installs boot loaders on the array, where firmware does not find them.
	if err := bootloader.CheckArray(i.o.System, disk); err != nil && !i.o.Config.Get().IgnoreBootloaderFailure {
		return "", fault.ImageWrite(disk.Path, fmt.Errorf("%w; the disk was not written to; "+
			"set the option ignore_bootloader_failure if the machine boots another way", err))
	}
	drive, err := i.loadConfigDrive(ctx, c.ConfigDrive, disk)
	if err != nil {
		return "", err
	}
	options, err := i.ContainerFetch(false)
	if err != nil {
		return "", fault.ImageDownload(c.Source, err)
	}
	defer options.Client.CloseIdleConnections()
	image, err := i.runtime.resolve(ctx, options, c.Source, c.PullSecret)
	if err != nil {
		return "", container.Fault(c.Source, err)
	}
	i.o.Log.Info("container image found", "image", image.Name, "digest", image.Digest)
	reserved, err := i.runBootc(ctx, disk, image, c)
	if err != nil {
		return "", err
	}
	table, err := i.checkInstalled(ctx, disk.Path)
	if err != nil {
		return "", err
	}
	result := fmt.Sprintf("Container image (%s) written to device %s", c.Source, disk.Path)
	if reserved > 0 {
		problem, err := i.growRoot(ctx, disk, table, reserved)
		if err != nil {
			return "", err
		}
		if problem != nil {
			i.o.Log.Warn("root file system not grown", "device", disk.Path, "err", problem)
			result += fmt.Sprintf("; root file system not grown by %d MiB: %v",
				toMiB(reserved), problem)
		}
	}
	if drive != nil {
		if err := i.writeConfigDrive(ctx, disk.Path, drive); err != nil {
			return "", err
		}
	}
	i.o.Log.Info("container image installed", "image", image.Name, "device", disk.Path)
	return result, nil
}

// runBootc unpacks the image and runs its bootc. The image is removed before it returns. It returns the number of bytes
// at the end of the disk by which the root file system is smaller because the image was there.
func (i *Imager) runBootc(
	ctx context.Context, disk block.Device, image *container.Image, c BootableContainer,
) (reserved int64, err error) {
	if size := disk.Size / bytesPerMiB; size <= unusedMiB {
		return 0, fault.ImageWrite(disk.Path, fmt.Errorf("disk has %d MiB, want more than %d", size, unusedMiB))
	}
	i.forget()
	if err := partition.Release(ctx, i.o.System, disk.Path); err != nil {
		return 0, fault.ImageWrite(disk.Path, err)
	}
	progress := i.o.Board.Track(i.o.Log, "installing container image", disk.Path)
	defer func() {
		result := ""
		if err == nil {
			result = fmt.Sprintf("container image %s installed on %s", image.Name, disk.Path)
		}
		progress.EndWith(result)
	}()
	b, err := i.runtime.prepare(ctx, image, container.Options{
		Log: i.o.Log, System: i.o.System, KeepImage: true, Disk: disk.Path,
		Progress: progress,
	})
	if err != nil {
		return 0, container.Fault(c.Source, err)
	}
	defer func() {
		if closeErr := b.Close(context.WithoutCancel(ctx)); closeErr != nil {
			i.o.Log.Error("container image not removed", "device", disk.Path, "err", closeErr)
			err = errors.Join(err, fault.ImageWrite(disk.Path, fmt.Errorf("remove the container image: %w", closeErr)))
		}
	}()
	args, err := bootcArguments(disk, b.Reserved(), image.Name, c)
	if err != nil {
		return 0, err
	}
	if err := i.clearTable(ctx, disk, b.Reserved()); err != nil {
		return 0, fault.ImageWrite(disk.Path, err)
	}
	files := map[string]container.File{}
	if c.AuthorizedKeys != "" {
		files[keysFile] = container.File{Content: []byte(c.AuthorizedKeys), Mode: 0o600}
	}
	progress.SetPhase("bootc install", 0, 0, 0)
	output := &container.OutputLog{Log: i.o.Log, Image: image.Name}
	err = b.Run(ctx, container.Spec{
		Args: args, Privileged: true, Disks: []string{disk.Path}, Files: files, Layout: layoutDir, Output: output,
		MaxDuration: i.o.Config.Get().Container.MaxDuration,
	})
	output.End()
	switch {
	case errors.Is(err, container.ErrNotFound):
		return 0, fault.ImageDownload(c.Source,
			fmt.Errorf("container does not contain the required bootc binary: %w", err))
	case err != nil:
		return 0, fault.ImageWrite(disk.Path, fmt.Errorf("install container image %s: %w", image.Name, err))
	}
	return b.Reserved(), nil
}

// clearTable removes the partition table and the partitions of a disk whose last bytes are reserved. Otherwise a
// former table would be taken for bootc's if bootc wrote none. The reserved range is overwritten when it is released.
// A disk in use is rejected (EBUSY).
func (i *Imager) clearTable(ctx context.Context, disk block.Device, reserved int64) error {
	f, err := os.OpenFile(disk.Path, os.O_RDWR|unix.O_EXCL, 0)
	if err != nil {
		return fmt.Errorf("clear partition table: %w", err)
	}
	if err := errors.Join(block.WipeEnds(ctx, f, [2]int64{0, disk.Size - reserved}), f.Close()); err != nil {
		return fmt.Errorf("clear partition table of %s: %w", disk.Path, err)
	}
	return partition.Sync(ctx, i.o.System, disk.Path)
}

// toMiB returns a number of bytes in MiB, rounded up.
func toMiB(bytes int64) int64 { return (bytes + bytesPerMiB - 1) / bytesPerMiB }

// rootMiB returns the size of the root file system on a disk, whose last bytes are reserved.
func rootMiB(disk block.Device, reserved int64) int64 {
	return disk.Size/bytesPerMiB - unusedMiB - toMiB(reserved)
}

// bootcArguments returns the command that installs the image on a disk, whose last bytes are reserved.
func bootcArguments(disk block.Device, reserved int64, name string, c BootableContainer) ([]string, error) {
	root := rootMiB(disk, reserved)
	if root <= 0 {
		return nil, fault.ImageWrite(disk.Path, fmt.Errorf("disk has %d MiB, want more than %d for the ESP, the "+
			"config drive and the container image", disk.Size/bytesPerMiB, disk.Size/bytesPerMiB-root))
	}
	args := []string{
		"bootc", "install", "to-disk", "--wipe", "--skip-fetch-check", fmt.Sprintf("--root-size=%dM", root),
		"--source-imgref=oci:" + layoutDir, "--target-imgref=" + name,
	}
	if c.AuthorizedKeys != "" {
		args = append(args, "--root-ssh-authorized-keys="+keysFile)
	}
	// The ramdisk has no SELinux policy, without which bootc cannot label files.
	return append(args, "--disable-selinux", disk.Path), nil
}

// checkInstalled makes the kernel read the partition table that bootc wrote, and returns it. It fails if the table has
// no partition.
func (i *Imager) checkInstalled(ctx context.Context, disk string) (*partition.Table, error) {
	if err := partition.Sync(ctx, i.o.System, disk); err != nil {
		i.o.Log.Warn("kernel does not see the new partitions", "device", disk, "err", err)
	}
	return i.checkTable(ctx, disk)
}

// growRoot enlarges the root partition and its file system by the reserved bytes at the end of the disk, which are free
// by now, so that they have the size that bootc would have given them without the reserve.
//
// The problem is the reason why that was impossible: the system that bootc installed is complete, and can grow its
// file system itself. The error is a fault: the disk or its partition table cannot be read or written, or the command
// was cancelled.
func (i *Imager) growRoot(
	ctx context.Context, disk block.Device, table *partition.Table, reserved int64,
) (problem, err error) {
	root, problem := findRoot(table, rootMiB(disk, reserved)*bytesPerMiB)
	if problem != nil {
		return problem, nil
	}
	end := min(root.Start+root.Size+toMiB(reserved)*bytesPerMiB, disk.Size/bytesPerMiB*bytesPerMiB-bytesPerMiB)
	grown, err := partition.Grow(ctx, disk.Path, root.Number, max(root.Size, end-root.Start))
	switch {
	case err != nil && ctx.Err() != nil:
		return nil, fault.ImageWrite(disk.Path, context.Cause(ctx))
	case errors.Is(err, partition.ErrCannotGrow):
		return err, nil
	case err != nil:
		return nil, fault.ImageWrite(disk.Path, err)
	}
	device, problem := i.growFileSystem(ctx, disk.Path, grown.Number)
	switch {
	case ctx.Err() != nil:
		return nil, fault.ImageWrite(disk.Path, context.Cause(ctx))
	case problem != nil:
		return fmt.Errorf("partition %d grew to %d bytes, its file system did not: %w",
			grown.Number, grown.Size, problem), nil
	}
	i.o.Log.Info("root file system grown", "device", device, "previous_bytes", root.Size,
		"bytes", grown.Size)
	return nil, nil
}

// growFileSystem enlarges the file system of a partition that was changed, and returns its device.
func (i *Imager) growFileSystem(ctx context.Context, disk string, number int) (string, error) {
	if err := partition.Sync(ctx, i.o.System, disk); err != nil {
		return "", err
	}
	attempts := max(1, i.o.Config.Get().DiskUtils.PartitionDetectionAttempts)
	waitCtx, cancel := context.WithTimeoutCause(ctx, time.Duration(attempts)*time.Second, errNoNode)
	defer cancel()
	device, err := block.WaitPartition(waitCtx, i.o.System, disk, number)
	if err != nil {
		return "", err
	}
	return device, i.runtime.growFS(ctx, device)
}

// findRoot returns the root partition: the last one of a GPT, if it has about the size that bootc was told. Otherwise
// bootc has partitioned the disk in its own way, which is not changed.
func findRoot(table *partition.Table, size int64) (partition.Partition, error) {
	if table.Scheme != partition.GPT {
		return partition.Partition{}, fmt.Errorf("got partition table %s, want %s", table.Scheme, partition.GPT)
	}
	byStart := func(a, b partition.Partition) int { return cmp.Compare(a.Start, b.Start) }
	last := slices.MaxFunc(table.Partitions, byStart)
	const alignment = 16 << 20 // to which bootc may have rounded the size
	if last.Size < size-alignment || last.Size > size+alignment {
		return last, fmt.Errorf("last partition %d: got %d bytes, want %d ± 16 MiB", last.Number, last.Size, size)
	}
	return last, nil
}
