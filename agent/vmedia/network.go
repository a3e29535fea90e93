package vmedia

import (
	"context"
	"errors"
	"io/fs"
	"strings"
	"time"

	"ironroot/agent/config"
	"ironroot/agent/fault"
	"ironroot/storage/removable"
)

// late is how many times longer than other media a drive with an id is looked for: a BMC may take its time, and no other
// drive can be mistaken for it.
const late = 10

// NetworkDataExpected tells whether the kernel's command line announces a config drive: by its id, or because the machine
// was booted from virtual media.
func NetworkDataExpected(params config.Params) bool {
	return params["ir_pub_id"] != "" || Booted(params)
}

// NetworkData returns the network data of the config drive that belongs to this boot, nil where there is none. The
// drive is a medium with the label config-2 whose publisher is the one the kernel parameter ir_pub_id names; both may be
// empty. A machine that booted over the network (BOOTIF) without such an id has none.
//
// It looks for the drive for at most 30 s, with an id for 5 minutes, and returns earlier only where the boot ISO without
// network data is there. Long before that it calls Overdue: at once where nothing announces the drive, else when the
// drivers are loaded and no further device appears. So whoever waits for the data with the network waits for a drive
// that is there, and takes what comes later as it comes.
func NetworkData(ctx context.Context, o Options) ([]byte, error) {
	overdue := o.Overdue
	if overdue == nil {
		overdue = func() {}
	}
	defer overdue()
	id := o.Params["ir_pub_id"]
	if id == "" && o.Params["BOOTIF"] != "" {
		return nil, nil
	}
	s := networkSearch{Options: o.withDefaults(), id: id, passed: map[string]bool{}}
	if NetworkDataExpected(o.Params) {
		if err := s.await(ctx, func() bool { return false }, s.visit); err != nil || s.done {
			return s.data, err
		}
	}
	overdue()
	wait := s.limit
	if id != "" {
		wait *= late
	}
	return s.data, s.watch(ctx, wait)
}

// networkSearch is what NetworkData has found.
type networkSearch struct {
	Options
	id     string
	passed map[string]bool // media of other boots, by path
	data   []byte
	done   bool
}

// watch visits the media whenever the kernel reports a change, until there is an answer or the time is over.
func (s *networkSearch) watch(ctx context.Context, wait time.Duration) error {
	limited, cancel := context.WithTimeout(ctx, wait)
	defer cancel()
	err := s.System.Await(limited, func() (bool, error) { return s.look(limited, s.visit) })
	if ctx.Err() == nil && errors.Is(err, context.DeadlineExceeded) {
		return nil
	}
	return err
}

func (s *networkSearch) visit(volumes []*removable.Volume) (bool, error) {
	for _, v := range volumes {
		switch {
		case v.Label == "config-2" && strings.EqualFold(v.Publisher, s.id):
			return s.read(v)
		case v.Label == "config-2" && !s.passed[v.Device.Path]:
			s.passed[v.Device.Path] = true
			s.Log.Warn("a config drive of another boot is not looked at", "device", v.Device.Path, "publisher", v.Publisher, "want", s.id)
		case strings.EqualFold(v.Label, "vmedia_boot_iso") && strings.EqualFold(v.Publisher, s.id):
			s.Log.Info("the boot ISO comes without network data", "device", v.Device.Path)
			s.done = true // else it had the other label
		}
	}
	return s.done, nil
}

// read takes the data from the drive of this boot. A drive that cannot be read now may be readable later.
func (s *networkSearch) read(v *removable.Volume) (bool, error) {
	content, err := v.ReadFile(networkFile, maxNetworkData)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		s.Log.Info("the config drive holds no network data", "device", v.Device.Path)
	case err != nil:
		err = fault.VirtualMediaBoot("network data: %w", err)
		if s.warn(v.Device.Path, err) {
			return false, nil
		}
		return false, err
	default:
		s.Log.Info("network data of the config drive", "device", v.Device.Path, "bytes", len(content))
		s.data = content
	}
	s.done = true
	return true, nil
}
