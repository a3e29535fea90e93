package extension

import (
	"context"
	"errors"
	"fmt"
	"time"

	"ironroot/agent/command"
	"ironroot/agent/fault"
	"ironroot/agent/imaging"
	"ironroot/storage/erase"
)

// standby writes an image, syncs the disks, and restarts the machine or powers it off.
func standby(d Deps) command.Extension {
	return command.Extension{Name: "standby", Commands: []command.Command{
		{
			Name: "prepare_image", Async: true, Destructive: true,
			Params: []command.Param{{Name: "image_info", Required: true}, {Name: "configdrive"}},
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
		{Name: "run_image", Async: true, Destructive: true, Run: endWith(d, "reboot", d.Power.Reboot)},
		{Name: "power_off", Async: true, Destructive: true, Run: endWith(d, "power off", d.Power.PowerOff)},
		{Name: "sync", Run: func(ctx context.Context, _ command.Params) (any, error) {
			if d.PoweringOff != nil { // Ironic syncs before it powers the machine off through its BMC
				d.PoweringOff()
			}
			return nil, syncDisks(ctx, d, syncLimit)
		}},
		{Name: "get_partition_uuids", Run: func(context.Context, command.Params) (any, error) {
			return d.Imager.PartitionUUIDs(), nil
		}},
	}}
}

func imageParams(d Deps, p command.Params) (info imaging.ImageInfo, configDrive string, err error) {
	if info, err = imaging.ParseImageInfo(p["image_info"], d.Config.Get().MD5Enabled); err != nil {
		return info, "", err
	}
	return info, configDrive, p.Decode("configdrive", &configDrive)
}

const (
	// syncLimit is longer than Linux tries to flush the cache of a disk: six times for up to a minute.
	syncLimit = 10 * time.Minute
	// endSyncLimit bounds the sync before the end: a hanging disk must not keep the machine running.
	endSyncLimit = time.Minute
	// syncGrace is the time for a hardware manager to return after its limit.
	syncGrace = time.Second
)

// syncDisks lets the hardware managers flush all disks. It fails if they do not return within limit. Managers that
// ignore the end of their context continue in the background.
func syncDisks(ctx context.Context, d Deps, limit time.Duration) error {
	limits := erase.Limits{Silence: limit, Grace: syncGrace}
	_, err := erase.Bounded(ctx, limits, func(ctx context.Context) (any, error) { return nil, d.Managers.Sync(ctx) })
	if errors.Is(err, erase.ErrStuck) {
		return fmt.Errorf("hardware managers: sync: %w", err)
	}
	return err
}

// endWith sets the clock, syncs the disks and then ends the operating system. A sync that fails or takes too long must
// not keep the machine running: the conductor waits for it to go, and what was written was flushed when it was written.
func endWith(d Deps, what string, end func(context.Context) error) func(context.Context, command.Params) (any, error) {
	return func(ctx context.Context, _ command.Params) (any, error) {
		if d.SetClock != nil {
			if err := d.SetClock(ctx); err != nil {
				return nil, err
			}
		}
		if err := syncDisks(ctx, d, endSyncLimit); err != nil {
			d.Log.Warn("disks not synced before "+what, "err", err)
		}
		d.Log.Info("the machine will now " + what)
		if err := end(ctx); err != nil {
			return nil, fault.SystemReboot(err)
		}
		return nil, nil
	}
}
