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
	"ironroot/storage/removable"
)

// visit looks at the media that are there and reports whether it found all it wants.
type visit func([]*removable.Volume) (bool, error)

// warn says what is wrong with a medium. It reports whether reading it again may help: the BMC fetches the medium over
// a network of its own, whereas what was read and makes no sense stays as it is.
func (m *Media) warn(device string, err error) (again bool) {
	if text := device + " " + err.Error(); !m.said[text] {
		m.said[text] = true
		m.seen = append(m.seen, fmt.Errorf("%s: %w", device, err))
		m.Log.Warn("a medium is of no use", "device", device, "err", err)
	}
	var errno unix.Errno
	if again = errors.As(err, &errno); again {
		m.failed = true
	}
	return again
}

// await visits the media once the machine's drivers are loaded, and again after every change the kernel reports, until
// the visitor is content. It gives up when nothing changes for a short time, later while a USB disk is being looked
// for, and at the limit where the media must come or cannot be read; giving up is no error.
func (m *Media) await(ctx context.Context, must func() bool, v visit) error {
	limited, cancel := context.WithTimeout(ctx, m.limit)
	defer cancel()
	started := time.Now()
	defer func() { m.Log.Info("looked for virtual media", "took", time.Since(started).Round(time.Millisecond)) }()
	if m.Settled != nil {
		select {
		case <-m.Settled:
		case <-limited.Done():
		}
	}
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

// ended reports whether a wait is over and nothing else is wrong.
func ended(err error) bool {
	return errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded)
}

// settle visits the media as the last that there are, if that lets the visitor take what it passed over. The error is
// context.Canceled where it is still not content.
func (m *Media) settle(ctx context.Context, v visit) error {
	m.settled = true
	if !m.second {
		return context.Canceled
	}
	m.second = false
	done, err := m.look(ctx, v)
	if err == nil && !done {
		return context.Canceled
	}
	return err
}

// untilQuiet visits the media until the visitor is content, or the kernel has reported nothing for a while; then the
// error is context.Canceled.
func (m *Media) untilQuiet(ctx context.Context, loaded time.Time, v visit) error {
	quiet, stop := context.WithCancel(ctx)
	defer stop()
	timer := goroutine.AfterTime(m.grace, stop)
	defer timer.Stop()
	return m.System.Await(quiet, func() (bool, error) {
		if time.Since(loaded) < m.scan { // a device that never stops reporting does not hold the machine up
			timer.Stop()
			defer func() { timer.Reset(m.pause()) }()
		}
		return m.look(ctx, v)
	})
}

// pause is how long the kernel must be silent. Where a medium was found, the others are plugged in by now, and only
// have to get their drivers.
func (m *Media) pause() time.Duration {
	if m.floppy || m.iso {
		return m.grace / 3
	}
	return m.grace
}

// look opens the media and passes them to v. Opening can hang in the kernel: its goroutine is then abandoned. A panic
// of v is returned as an error.
func (m *Media) look(ctx context.Context, v visit) (done bool, err error) {
	type answer struct {
		volumes  []*removable.Volume
		problems []*removable.Problem
		err      error
	}
	answers := make(chan answer, 1)
	var read answer
	goroutine.Go(func() (err error) {
		read.volumes, read.problems, err = m.open(ctx, m.System)
		return err
	}, func(err error) {
		read.err = err
		answers <- read
	})
	var a answer
	select {
	case a = <-answers:
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

// scanning reports whether the driver of a USB disk is there and its disk is not yet: the kernel waits a second before
// it asks such a device what it is.
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
