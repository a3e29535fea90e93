package erase

import (
	"context"
	"errors"
	"fmt"

	"ironroot/internal/timelimit"
	"ironroot/storage/ata"
	"ironroot/storage/erase/evidence"
)

// noteHidden records how many sectors a drive with these features hides, or that it does not say, and what
// it said to the queries. A query that the drive rejects, for example because the firmware has frozen the feature, is
// no error. If unable is not nil, it is the reason why the drive is not asked.
func (d *ataDisk) noteHidden(ctx context.Context, c ata.Capacity, unable error) {
	if c.Sectors == 0 && unable == nil {
		unable = errors.New("no number of addressable sectors")
	}
	native := c.Sectors - 1 // the largest address
	query := func(name string, read func() (uint64, error)) (largest uint64, known bool) {
		err := unable
		switch {
		case ctx.Err() != nil:
			return 0, false
		case err != nil:
			err = fmt.Errorf("not asked: %w", err)
		default:
			largest, err = read()
			timelimit.Progress(ctx)
		}
		switch {
		case err != nil:
			d.record.reported(name, fmt.Sprintf("hidden sectors not known: %v", err), false)
			return 0, false
		case largest < c.Sectors-1:
			d.record.reported(name, fmt.Sprintf("hidden sectors not known: got largest address %d, want at least %d",
				largest, c.Sectors-1), false)
			return 0, false
		}
		d.record.reported(name, fmt.Sprintf("largest address %d, addressable now %d", largest, c.Sectors-1), false)
		return largest, true
	}
	var hidden evidence.Hidden
	if c.HPA {
		largest, known := query("READ NATIVE MAX ADDRESS",
			func() (uint64, error) { return d.drive.ReadNativeMax(c.Extended) })
		native, hidden.NativeUnknown = max(native, largest), !known
	}
	if c.AMAC {
		largest, known := query("GET NATIVE MAX ADDRESS EXT", d.drive.GetNativeMax)
		native, hidden.NativeUnknown = max(native, largest), hidden.NativeUnknown || !known
	}
	configured := native
	if c.DCO {
		largest, known := query("DEVICE CONFIGURATION IDENTIFY", d.drive.ConfiguredMax)
		configured, hidden.OverlayUnknown = max(native, largest), !known
		// The address without an overlay includes what other features hide.
		hidden.NativeUnknown = hidden.NativeUnknown && hidden.OverlayUnknown
	}
	hidden.OverlayBytes = int64(configured-native) * c.SectorBytes
	if hidden.NativeBytes = int64(native-(c.Sectors-1)) * c.SectorBytes; hidden.NativeBytes > 0 {
		hidden.NativeUnknown = false // another query has told the number
	}
	if hidden != (evidence.Hidden{}) && ctx.Err() == nil {
		d.record.change(func(r *Report) { r.Hidden = &hidden })
	}
}
