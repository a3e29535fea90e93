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

	"ironroot/internal/goroutine"
	"ironroot/internal/pause"
	"ironroot/storage/removable"
)

// visit reads the present media and reports whether it found everything.
type visit func([]*removable.Volume) (bool, error)

// warn logs an error of a medium once. It reports whether a retry can succeed: the BMC reads the medium over its own
// network, so system errors can be temporary, but invalid content stays invalid.
func (m *Media) warn(device string, err error) (again bool) {
	if text := device + " " + err.Error(); !m.reported[text] {
		m.reported[text] = true
		m.problems = append(m.problems, fmt.Errorf("%s: %w", device, err))
		m.Log.Warn("virtual medium not usable", "device", device, "err", err)
	}
	var errno unix.Errno
	if again = errors.As(err, &errno); again {
		m.failed = true
	}
	return again
}

// await visits the media once the machine's drivers are loaded, and again after every change that the kernel reports,
// until v returns true. It gives up when nothing changes for grace. It waits for scan while a USB disk is being probed,
// and for limit if must returns true or a medium cannot be read. Giving up is not an error. The wait for the drivers
// has a limit of its own, which all calls share: they can need longer than the media.
func (m *Media) await(ctx context.Context, must func() bool, v visit) error {
	started := time.Now()
	defer func() { m.Log.Info("virtual media searched", "duration", time.Since(started).Round(time.Millisecond)) }()
	loading, stop := context.WithDeadline(ctx, m.began.Add(m.drivers))
	_ = pause.Until(loading, m.Settled) // media can be there in spite of a driver that hangs
	stop()
	limited, cancel := context.WithTimeout(ctx, m.limit)
	defer cancel()
	loaded := time.Now()
	for {
		err := m.untilQuiet(limited, loaded, v)
		scanning := m.scanning() && time.Since(loaded) < m.scan
		if ended(err) && limited.Err() == nil && !scanning {
			err = m.settle(limited, v)
		}
		switch {
		case err == nil:
			return nil
		case ctx.Err() != nil:
			return ctx.Err()
		case !ended(err):
			return err
		case limited.Err() != nil:
			return nil
		case !must() && !m.failed && !scanning:
			return nil
		}
	}
}

// ended reports whether err is only the end of a wait.
func ended(err error) bool {
	return errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded)
}

// settle visits the media once more if a fallback was skipped, which is now accepted. The error is context.Canceled
// if v does not return true.
func (m *Media) settle(ctx context.Context, v visit) error {
	m.quiet = true
	if !m.fallbackSkipped {
		return context.Canceled
	}
	m.fallbackSkipped = false
	done, err := m.look(ctx, v)
	if err == nil && !done {
		return context.Canceled
	}
	return err
}

// untilQuiet visits the media until v returns true. The error is context.Canceled if the kernel has reported no change
// for quietTime.
func (m *Media) untilQuiet(ctx context.Context, loaded time.Time, v visit) error {
	quiet, stop := context.WithCancel(ctx)
	defer stop()
	timer := goroutine.AfterTime(m.grace, stop)
	defer timer.Stop()
	return m.drives.await(quiet, func() (bool, error) {
		if time.Since(loaded) < m.scan { // later changes do not extend the wait
			timer.Stop()
			defer func() { timer.Reset(m.quietTime()) }()
		}
		return m.look(ctx, v)
	})
}

// quietTime returns the time without changes after which the wait ends. It is shorter once a medium was found: then the
// others are attached, and only need their drivers.
func (m *Media) quietTime() time.Duration {
	if m.floppy || m.iso {
		return m.grace / 3
	}
	return m.grace
}

// look opens the media and passes them to v. If opening hangs in the kernel, its goroutine is abandoned. A panic of v
// is returned as an error.
func (m *Media) look(ctx context.Context, v visit) (done bool, err error) {
	type answer struct {
		volumes  []*removable.Volume
		problems []*removable.Problem
		err      error
	}
	answers := make(chan answer, 1)
	var read answer
	goroutine.Go(func() (err error) {
		read.volumes, read.problems, err = m.drives.volumes(ctx, m.System)
		return err
	}, func(err error) {
		read.err = err
		answers <- read
	})
	var a answer
	select {
	case a = <-answers:
		if a.err != nil && ctx.Err() != nil {
			return false, ctx.Err() // the disks were not listed because the wait ended
		}
	case <-ctx.Done():
		return false, ctx.Err()
	}
	m.failed = false
	if a.err != nil {
		m.warn("/sys/block", a.err)
	}
	for _, p := range a.problems {
		m.warn(p.Device, p.Err)
	}
	err = goroutine.Catch(func() (err error) {
		done, err = v(a.volumes)
		return err
	})
	for _, volume := range a.volumes {
		if closing := volume.Close(); closing != nil {
			err = errors.Join(err, fmt.Errorf("close %s: %w", volume.Device.Path, closing))
		}
	}
	return done, err
}

// scanning reports whether a USB storage driver is bound whose disk does not exist yet: the kernel waits a second
// before it probes such a device.
func (m *Media) scanning() bool {
	hosts, err := filepath.Glob(m.System.Sys("class/scsi_host/host*"))
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
