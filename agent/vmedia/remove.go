package vmedia

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"strings"

	"ironroot/agent/config"
	"ironroot/internal/timelimit"
	"ironroot/storage/removable"
	"ironroot/storage/sysfs"
)

// Remove removes media with the operator's configuration. It overwrites the RAM disks to which the firmware has loaded
// one. If params say that the machine was booted from virtual media, it makes the kernel forget the drives with the
// boot ISO, the config drive and the floppy with parameters. It continues after an error and returns all of them.
// Opening a drive can hang in the kernel: call Remove by [timelimit.Do], to which it reports progress.
func Remove(ctx context.Context, sys sysfs.Root, params config.Params, log *slog.Logger) error {
	err := overwriteRAMDisks(ctx, sys, log)
	if Booted(params) && ctx.Err() == nil {
		err = errors.Join(err, removeAll(ctx, sys, log))
	}
	return err
}

func removeAll(ctx context.Context, sys sysfs.Root, log *slog.Logger) error {
	volumes, problems, err := removable.Volumes(ctx, sys)
	if err != nil {
		return fmt.Errorf("list virtual media: %w", err)
	}
	var failed []error
	for _, p := range problems { // it can contain anything
		failed = append(failed, remove(sys, p.Device, log))
		timelimit.Progress(ctx)
	}
	for _, v := range volumes {
		isFloppy := strings.EqualFold(v.Label, floppyLabel) ||
			strings.Contains(strings.ToLower(v.Device.Model), floppyModel)
		if err := v.Close(); err != nil {
			failed = append(failed, err)
		}
		if isFloppy || isBootISO(v) {
			failed = append(failed, remove(sys, v.Device.Path, log))
		}
		timelimit.Progress(ctx)
	}
	return errors.Join(failed...)
}

// remove removes a SCSI device, which all drives of BMCs are.
func remove(sys sysfs.Root, path string, log *slog.Logger) error {
	name := strings.TrimPrefix(path, "/dev/")
	f, err := os.OpenFile(sys.Sys("block", name, "device/delete"), os.O_WRONLY, 0)
	if errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("remove drive %s: the kernel cannot remove this kind", path)
	}
	if err != nil {
		return fmt.Errorf("remove drive %s: %w", path, err)
	}
	_, err = f.WriteString("1")
	if err := errors.Join(err, f.Close()); err != nil {
		return fmt.Errorf("remove drive %s: %w", path, err)
	}
	log.Info("drive of virtual media removed", "device", path)
	return nil
}
