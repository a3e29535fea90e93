package vmedia

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	"ironroot/storage/removable"
)

// visit looks at the media that are there and tells whether it found all it wants.
type visit func([]*removable.Volume) (bool, error)

// await visits the media once the machine's drivers are loaded, and again after every change the kernel reports, until
// the visitor is content. It gives up when nothing changes for a short time, later while a USB disk is being looked
// for, and at the limit where the media must come; giving up is no error.
func (o Options) await(ctx context.Context, must func() bool, v visit) error {
	limited, cancel := context.WithTimeout(ctx, o.limit)
	defer cancel()
	started := time.Now()
	defer func() { o.Log.Info("looked for virtual media", "took", time.Since(started).Round(time.Millisecond)) }()
	if o.Settled != nil {
		select {
		case <-o.Settled:
		case <-limited.Done():
		}
	}
	settled := time.Now()
	for {
		quiet, stop := context.WithTimeout(limited, o.grace)
		err := o.System.Await(quiet, func() (bool, error) { return o.look(limited, v) })
		stop()
		switch {
		case err == nil:
			return nil
		case ctx.Err() != nil:
			return ctx.Err()
		case !errors.Is(err, context.DeadlineExceeded):
			return err
		case limited.Err() != nil:
			return nil
		case !must() && (!o.scanning() || time.Since(settled) >= o.scan):
			return nil
		}
	}
}

// look opens the media and visits them. Reading a medium can hang in the kernel: then it is left behind.
func (o Options) look(ctx context.Context, v visit) (bool, error) {
	type answer struct {
		volumes []*removable.Volume
		err     error
	}
	answers := make(chan answer, 1)
	go func() {
		volumes, err := removable.Volumes(ctx, o.System)
		answers <- answer{volumes, err}
	}()
	var a answer
	select {
	case a = <-answers:
	case <-ctx.Done():
		return false, ctx.Err()
	}
	if a.err != nil {
		o.Log.Warn("some media cannot be read", "err", a.err)
	}
	done, err := v(a.volumes)
	for _, volume := range a.volumes {
		if closing := volume.Close(); closing != nil {
			err = errors.Join(err, fmt.Errorf("close %s: %w", volume.Device.Path, closing))
		}
	}
	return done, err
}

// scanning tells whether the driver of a USB disk is there and its disk is not yet: the kernel waits a second before it
// asks such a device what it is.
func (o Options) scanning() bool {
	hosts, err := filepath.Glob(o.System.Sys("class/scsi_host/host*"))
	if err != nil {
		return false // the pattern is a constant
	}
	for _, host := range hosts {
		driver, err := os.ReadFile(filepath.Join(host, "proc_name"))
		if err != nil {
			continue
		}
		if name := strings.TrimSpace(string(driver)); name != "usb-storage" && name != "uas" {
			continue
		}
		if targets, _ := filepath.Glob(filepath.Join(host, "device/target*")); len(targets) == 0 {
			return true
		}
	}
	return false
}
