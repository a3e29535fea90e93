package containers

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"

	"ironroot/agent/container"
	"ironroot/agent/fault"
	"ironroot/agent/node"
	"ironroot/agent/softraid"
	"ironroot/agent/status"
	"ironroot/storage/block"
	"ironroot/storage/image/fetch"
	"ironroot/storage/sysfs"
)

// Runner runs jobs by the ramdisk's container runtime. Images are in memory only.
type Runner struct {
	System  sysfs.Root
	Fetcher Fetcher
	// Disks lists the disks that all managers together report.
	Disks block.Lister
	// Board shows the progress of work on an image.
	Board status.Trackers
	Log   *slog.Logger
}

// Fetcher returns the options for registries: see [imaging.Imager.ContainerFetch].
type Fetcher interface {
	// ContainerFetch returns options that do not verify the registry's certificate if skipVerify is set.
	ContainerFetch(skipVerify bool) (fetch.Options, error)
}

// Available implements [Runtime].
func (r *Runner) Available() error { return container.Available() }

// Run pulls the image of a job and runs it to its end. Its errors are faults, or errors of the step.
func (r *Runner) Run(ctx context.Context, job Job) (err error) {
	disks, err := r.disks(ctx, job)
	if err != nil {
		return err
	}
	options, err := r.Fetcher.ContainerFetch(job.Pull.SkipTLSVerify)
	if err != nil {
		return fault.ImageDownload(job.Image, err)
	}
	defer options.Client.CloseIdleConnections()
	if job.Pull.Retries != nil {
		options.Retries = *job.Pull.Retries
	}
	if job.Pull.RetryDelay != nil {
		options.RetryInterval = *job.Pull.RetryDelay
	}
	image, err := container.Resolve(ctx, options, job.Image, "")
	if err != nil {
		return container.Fault(job.Image, err)
	}
	progress := r.Board.Track(r.Log, "container", image.Name)
	defer progress.End()
	bundle, err := container.Prepare(ctx, image, container.Options{
		Log: r.Log, System: r.System,
		Progress: progress,
	})
	if err != nil {
		return container.Fault(job.Image, err)
	}
	defer func() {
		if closeErr := bundle.Close(context.WithoutCancel(ctx)); closeErr != nil {
			r.Log.Error("container image not removed", "image", image.Name, "err", closeErr)
			err = errors.Join(err, fmt.Errorf("remove container image %s: %w", image.Name, closeErr))
		}
	}()
	progress.SetPhase("running", 0, 0, 0)
	output := &container.OutputLog{Log: r.Log, Image: image.Name}
	err = bundle.Run(ctx, container.Spec{
		Args: job.Run.Entrypoint, Env: job.Run.Env, Privileged: job.Run.Privileged, Disks: disks,
		Dir: job.Run.Dir, User: job.Run.User, NoNetwork: job.Run.NoNetwork, Mounts: job.Run.Mounts, Output: output,
		MaxDuration: job.MaxDuration,
	})
	output.End()
	if err != nil {
		return fault.CommandExecution(fmt.Errorf("run container image %s: %w", image.Name, err))
	}
	return nil
}

// disks returns the paths of the disks that the program sees. A disk that the node protects is omitted, or an error if
// the options name it.
func (r *Runner) disks(ctx context.Context, job Job) ([]string, error) {
	if !job.Run.AllDisks && len(job.Run.Disks) == 0 {
		return nil, nil
	}
	all, err := r.Disks.Disks(ctx)
	if err != nil {
		return nil, fault.DeviceNotFound("list disks: %w", err)
	}
	usable, err := r.unprotected(ctx, job.Node, all)
	if err != nil {
		return nil, fault.DeviceNotFound("%w", err)
	}
	if job.Run.AllDisks {
		var paths []string
		for _, d := range usable {
			local, err := d.IsLocal()
			if err != nil {
				return nil, fault.DeviceNotFound("%w", err)
			}
			if local { // others can belong to other machines: they must be named
				paths = append(paths, d.Path)
			}
		}
		return paths, nil
	}
	for _, path := range job.Run.Disks {
		same := func(d block.Device) bool { return d.Path == path }
		if !slices.ContainsFunc(all, same) {
			return nil, fault.DeviceNotFound("run option --device: %s is not a disk of the node", path)
		}
		if !slices.ContainsFunc(usable, same) {
			return nil, fault.DeviceNotFound("run option --device: %s is protected by skip_block_devices, read-only "+
				"or virtual media", path)
		}
	}
	return job.Run.Disks, nil
}

// unprotected returns the disks that a program may write to.
func (r *Runner) unprotected(ctx context.Context, n *node.Node, disks []block.Device) ([]block.Device, error) {
	disks, err := softraid.Unprotected(ctx, r.System, n, disks)
	if err != nil {
		return nil, err
	}
	var usable []block.Device
	for _, d := range disks {
		media, err := block.IsVirtualMedia(r.System, d.Name)
		if err != nil {
			return nil, fmt.Errorf("disk %s: %w", d.Path, err)
		}
		if !media && !d.ReadOnly {
			usable = append(usable, d)
		}
	}
	return usable, nil
}
