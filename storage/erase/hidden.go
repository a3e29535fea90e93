package erase

import (
	"context"
	"fmt"
	"strings"

	"ironroot/storage/ata"
	"ironroot/storage/erase/evidence"
)

// noteHidden notes in the trace how many sectors a drive hides, and what it said to the queries. A query that the drive
// rejects, for example because the firmware has frozen the feature, is noted and no error.
func (d *ataDisk) noteHidden(ctx context.Context, c ata.Capacity) {
	if c.Sectors == 0 {
		return
	}
	native := c.Sectors - 1 // the largest address
	query := func(name string, read func() (uint64, error)) (largest uint64) {
		if ctx.Err() != nil {
			return 0
		}
		largest, err := read()
		ReportProgress(ctx)
		switch {
		case err != nil:
			reported(ctx, name, fmt.Sprintf("hidden sectors not known: %v", err), false)
			return 0
		case largest < c.Sectors-1:
			reported(ctx, name, fmt.Sprintf("hidden sectors not known: got largest address %d, want at least %d",
				largest, c.Sectors-1), false)
			return 0
		}
		reported(ctx, name, fmt.Sprintf("largest address %d, addressable now %d", largest, c.Sectors-1), false)
		return largest
	}
	if c.HPA {
		native = max(native, query("READ NATIVE MAX ADDRESS", func() (uint64, error) {
			return d.drive.ReadNativeMax(c.Extended)
		}))
	}
	if c.AMAC {
		native = max(native, query("GET NATIVE MAX ADDRESS EXT", d.drive.GetNativeMax))
	}
	configured := native
	if c.DCO {
		configured = max(native, query("DEVICE CONFIGURATION IDENTIFY", d.drive.ConfiguredMax))
	}
	hidden := evidence.Hidden{
		NativeBytes:  int64(native-(c.Sectors-1)) * c.SectorBytes,
		OverlayBytes: int64(configured-native) * c.SectorBytes,
	}
	if hidden.Bytes() > 0 {
		note(ctx, func(o *Observed) { o.Hidden = &hidden })
	}
}

// hiddenText returns what follows a method because of sectors that the drive hides, "" if none are known.
func hiddenText(method Method, h *evidence.Hidden) Method {
	if h == nil {
		return ""
	}
	name, _, _ := strings.Cut(string(method), "; ")
	unreached := evidence.Unreached(name, h)
	text := fmt.Sprintf("; the drive hides %d bytes by an HPA or Accessible Max Address and %d bytes by a DCO: ",
		h.NativeBytes, h.OverlayBytes)
	if unreached > 0 {
		text += fmt.Sprintf("%d bytes not erased", unreached)
	}
	if reached := h.Bytes() - unreached; reached > 0 {
		if unreached > 0 {
			text += ", "
		}
		text += fmt.Sprintf("%d bytes erased if the drive follows ACS, which was not verified", reached)
	}
	return Method(text)
}
