package vmedia

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"ironroot/storage/removable"
)

// visit looks at the media that are there and tells whether it found all it wants.
type visit func([]*removable.Volume) (bool, error)

// progress is what the looks at the media have come to so far.
type progress struct {
	said   map[string]bool // what is wrong with the media, each trouble once
	seen   []error         // the same, in order
	failed bool            // the last look could not read a medium: the next one may
	partly bool            // something was found: what else there is is plugged in by now, and only has to get its driver
}

// warn says what is wrong with a medium. It tells whether reading it again may help: the BMC fetches the medium over a
// network of its own, whereas what was read and makes no sense stays as it is.
func (o Options) warn(device string, err error) (again bool) {
	if text := device + " " + err.Error(); !o.progress.said[text] {
		o.progress.said[text] = true
		o.progress.seen = append(o.progress.seen, fmt.Errorf("%s: %w", device, err))
		o.Log.Warn("a medium is of no use", "device", device, "err", err)
	}
	var errno unix.Errno
	if again = errors.As(err, &errno); again {
		o.progress.failed = true
	}
	return again
}

// await visits the media once the machine's drivers are loaded, and again after every change the kernel reports, until
// the visitor is content. It gives up when nothing changes for a short time, later while a USB disk is being looked
// for, and at the limit where the media must come or cannot be read; giving up is no error.
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
		err := o.untilQuiet(limited, settled, v)
		switch {
		case err == nil:
			return nil
		case ctx.Err() != nil:
			return ctx.Err()
		case !errors.Is(err, context.Canceled) && !errors.Is(err, context.DeadlineExceeded):
			return err
		case limited.Err() != nil:
			return nil
		case !must() && !o.progress.failed && (!o.scanning() || time.Since(settled) >= o.scan):
			return nil
		}
	}
}

// untilQuiet visits the media until the visitor is content, or the kernel has reported nothing for a while; then the
// error is context.Canceled.
func (o Options) untilQuiet(ctx context.Context, settled time.Time, v visit) error {
	quiet, stop := context.WithCancel(ctx)
	defer stop()
	timer := time.AfterFunc(o.grace, stop)
	defer timer.Stop()
	return o.System.Await(quiet, func() (bool, error) {
		if time.Since(settled) < o.scan { // a device that never stops reporting does not hold the machine up
			timer.Stop()
			defer func() { timer.Reset(o.pause()) }()
		}
		return o.look(ctx, v)
	})
}

// pause is how long the kernel must be silent.
func (o Options) pause() time.Duration {
	if o.progress.partly {
		return o.grace / 3
	}
	return o.grace
}

// look opens the media and visits them. Reading a medium can hang in the kernel: then it is left behind.
func (o Options) look(ctx context.Context, v visit) (bool, error) {
	type answer struct {
		volumes  []*removable.Volume
		problems []*removable.Problem
		err      error
	}
	answers := make(chan answer, 1)
	go func() {
		var a answer
		a.volumes, a.problems, a.err = removable.Volumes(ctx, o.System)
		answers <- a
	}()
	var a answer
	select {
	case a = <-answers:
	case <-ctx.Done():
		return false, ctx.Err()
	}
	o.progress.failed = false
	if a.err != nil {
		o.warn("/sys/block", a.err)
	}
	for _, p := range a.problems {
		o.warn(p.Device, p.Err)
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
