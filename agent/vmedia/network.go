package vmedia

import (
	"context"
	"errors"
	"io/fs"
	"strings"
	"time"

	"ironroot/agent/fault"
	"ironroot/storage/removable"
)

// idWaitFactor extends the wait for a drive with an id: a BMC can attach it late, and no other drive can be mistaken
// for it.
const idWaitFactor = 10

// networkSearch is the state of the search for the config drive with network data.
type networkSearch struct {
	id      string
	skipped map[string]bool // media of other boots, by path
	data    []byte
	done    bool // the search has ended, with data or without
	device  string
	err     error // error of the last attempt to read device
}

// NetworkDataExpected reports whether the kernel's command line announces a config drive: by its id, or because the
// machine was booted from virtual media.
func (m *Media) NetworkDataExpected() bool { return m.network.id != "" || Booted(m.Params) }

// NetworkData returns the network data of this boot's config drive, nil if there is none. The drive is a medium with
// the label config-2, in upper or lower case, whose publisher equals the kernel parameter ir_pub_id; both can be empty.
// A machine that booted over the network (BOOTIF) without such an id has none.
//
// It searches for at most 30 s, with an id for 5 minutes, and returns earlier only if it finds the drive, or a boot ISO
// without network data. Before that it calls overdue: at once if nothing announces the drive or if Load has already
// waited for the media, otherwise when the drivers are loaded and no further device appears. Callers delay the network
// until then, and apply later data as a change.
func (m *Media) NetworkData(ctx context.Context, overdue func()) ([]byte, error) {
	defer overdue()
	s := &m.network
	if s.done || s.id == "" && m.Params["BOOTIF"] != "" {
		return s.data, nil
	}
	if m.NetworkDataExpected() && (!m.quiet || s.err != nil) {
		if err := m.await(ctx, func() bool { return false }, m.visitNetwork); err != nil || s.done {
			return s.data, err
		}
	}
	overdue()
	wait := m.limit
	if s.id != "" {
		wait *= idWaitFactor
	}
	return s.data, m.watch(ctx, wait)
}

// watch visits the media whenever the kernel reports a change, until the search has ended or wait has passed.
func (m *Media) watch(ctx context.Context, wait time.Duration) error {
	limited, cancel := context.WithTimeout(ctx, wait)
	defer cancel()
	err := m.drives.await(limited, func() (bool, error) { return m.look(limited, m.visitNetwork) })
	if ctx.Err() == nil && errors.Is(err, context.DeadlineExceeded) {
		return nil
	}
	return err
}

// visitNetwork reports whether the search has ended. A drive that cannot be read now can become readable.
func (m *Media) visitNetwork(volumes []*removable.Volume) (bool, error) {
	s := &m.network
	s.inspect(m, volumes)
	if s.err != nil && !m.warn(s.device, s.err) {
		return false, s.err
	}
	return s.done, nil
}

// inspect searches open media for the data. It logs drives of other boots once.
func (s *networkSearch) inspect(m *Media, volumes []*removable.Volume) {
	s.err = nil
	for _, v := range volumes {
		drive, ours := isConfigDrive(v.Label), strings.EqualFold(v.Publisher, s.id)
		switch {
		case drive && !ours && !s.skipped[v.Device.Path]:
			s.skipped[v.Device.Path] = true
			m.Log.Warn("config drive of another boot ignored",
				"device", v.Device.Path, "publisher", v.Publisher, "want", s.id)
		case s.done || s.err != nil:
		case drive && ours:
			s.read(m, v)
		case strings.EqualFold(v.Label, "vmedia_boot_iso") && ours:
			m.Log.Info("boot ISO contains no network data", "device", v.Device.Path)
			s.done = true // otherwise its label would be config-2
		}
	}
}

// read reads the data of this boot's drive.
func (s *networkSearch) read(m *Media, v *removable.Volume) {
	content, err := v.ReadFile(networkFile, maxNetworkData)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		m.Log.Info("config drive contains no network data", "device", v.Device.Path)
	case err != nil:
		s.device, s.err = v.Device.Path, fault.VirtualMediaBoot("network data: %w", err)
		return
	default:
		m.Log.Info("network data read from config drive", "device", v.Device.Path, "bytes", len(content))
		s.data = content
	}
	s.done = true
}
