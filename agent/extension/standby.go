package extension

import (
	"context"
	"errors"
	"fmt"
	"time"

	"ironroot/agent/command"
	"ironroot/agent/fault"
	"ironroot/agent/imaging"
	"ironroot/internal/timelimit"
)

// standby writes an image, syncs the disks, and restarts the machine or powers it off.
func standby(d Deps) command.Extension {
	return command.Extension{Name: "standby", Commands: []command.Command{
		{
			Name: "prepare_image", Async: true, Destructive: true,
			Params: []command.Param{{Name: "image_info"}, {Name: "configdrive"}}, // Validate rejects a missing image
			Validate: func(_ context.Context, p command.Params) error {
				_, _, err := imageParams(d, p)
				return err
			},
			Run: func(ctx context.Context, p command.Params) (any, error) {
				info, drive, err := imageParams(d, p)
				if err != nil {
					return nil, err
				}
				return d.Imager.Prepare(ctx, info, drive)
			},
		},
		{
			Name: "cache_image", Async: true, Destructive: true,
			Params: []command.Param{{Name: "image_info"}, {Name: "force"}, {Name: "configdrive"}},
			Validate: func(_ context.Context, p command.Params) error {
				_, _, _, err := cacheParams(d, p)
				return err
			},
			Run: func(ctx context.Context, p command.Params) (any, error) {
				info, drive, force, err := cacheParams(d, p)
				if err != nil {
					return nil, err
				}
				return d.Imager.Cache(ctx, info, drive, force)
			},
		},
		{
			Name: "execute_bootc_install", Async: true, Destructive: true,
			Params: []command.Param{
				{Name: "image_source", Required: true},
				{Name: "instance_info"},
				{Name: "pull_secret"},
				{Name: "configdrive"},
			},
			Validate: func(_ context.Context, p command.Params) error {
				_, err := containerParams(p)
				return err
			},
			Run: func(ctx context.Context, p command.Params) (any, error) {
				c, err := containerParams(p)
				if err != nil {
					return nil, err
				}
				return d.Imager.InstallContainer(ctx, c)
			},
		},
		{Name: "run_image", Async: true, Destructive: true, Run: stopWith(d, "reboot", d.Power.Reboot)},
		{Name: "power_off", Async: true, Destructive: true, Run: stopWith(d, "power off", d.Power.PowerOff)},
		{Name: "sync", Run: func(ctx context.Context, _ command.Params) (any, error) {
			d.Stop.PoweringOff() // Ironic syncs before it powers the machine off through its BMC
			return nil, syncDisks(ctx, d, syncTimeout)
		}},
		{Name: "get_partition_uuids", Run: func(context.Context, command.Params) (any, error) {
			return d.Imager.PartitionUUIDs(), nil
		}},
	}}
}

func containerParams(p command.Params) (imaging.BootableContainer, error) {
	return imaging.ParseBootableContainer(p["image_source"], p["instance_info"], p["pull_secret"], p["configdrive"])
}

func imageParams(d Deps, p command.Params) (info imaging.ImageInfo, configDrive string, err error) {
	if info, err = imaging.ParseImageInfo(p["image_info"], d.Config.Get().MD5Enabled); err != nil {
		return info, "", err
	}
	return info, configDrive, p.Decode("configdrive", &configDrive)
}

func cacheParams(d Deps, p command.Params) (info imaging.ImageInfo, configDrive string, force bool, err error) {
	if info, configDrive, err = imageParams(d, p); err != nil {
		return info, "", false, err
	}
	return info, configDrive, force, p.Decode("force", &force)
}

const (
	// syncTimeout exceeds the time in which Linux tries to flush a disk's cache: six attempts of up to a minute.
	syncTimeout = 10 * time.Minute
	// stopSyncTimeout limits the sync before the machine stops: a hanging disk must not keep it running.
	stopSyncTimeout = time.Minute
	// DetachTimeout limits the end of the sessions of network disks before the machine stops or its network is
	// taken down.
	DetachTimeout = 20 * time.Second
	// syncCancelTimeout limits the wait for a hardware manager to return after its context has ended.
	syncCancelTimeout = time.Second
)

// syncDisks lets the hardware managers flush all disks. It fails if they do not return within limit. Managers that
// ignore the end of their context continue in the background.
func syncDisks(ctx context.Context, d Deps, limit time.Duration) error {
	limits := timelimit.Limits{NoProgress: limit, Grace: syncCancelTimeout}
	err := timelimit.Run(ctx, limits, d.Managers.Sync)
	if errors.Is(err, timelimit.ErrStuck) {
		return fmt.Errorf("hardware managers: sync: %w", err)
	}
	return err
}

// stopWith returns a command that sets the clock, syncs the disks, leaves the disks of a network and then stops the
// machine with end. A failed or slow sync must not keep the machine running: the conductor waits for its stop, and
// images are flushed when they are written.
func stopWith(d Deps, what string, end func(context.Context) error) func(context.Context, command.Params) (any, error) {
	return func(ctx context.Context, _ command.Params) (any, error) {
		if err := d.Stop.SetClocks(ctx); err != nil {
			return nil, err
		}
		if err := syncDisks(ctx, d, stopSyncTimeout); err != nil {
			d.Log.Warn("disks not synced", "before", what, "err", err)
		}
		limited, cancel := context.WithTimeout(ctx, DetachTimeout)
		d.Stop.Detach(limited)
		cancel()
		d.Log.Info("stopping the machine", "action", what)
		if err := end(ctx); err != nil {
			return nil, fault.SystemReboot(err)
		}
		return nil, nil
	}
}
