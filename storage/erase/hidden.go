package erase

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"ironroot/internal/timelimit"
	"ironroot/storage/ata"
	"ironroot/storage/erase/evidence"
)

// noteHidden notes in the trace how many sectors a drive with these features hides, or that it does not say, and what
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
			reported(ctx, name, fmt.Sprintf("hidden sectors not known: %v", err), false)
			return 0, false
		case largest < c.Sectors-1:
			reported(ctx, name, fmt.Sprintf("hidden sectors not known: got largest address %d, want at least %d",
				largest, c.Sectors-1), false)
			return 0, false
		}
		reported(ctx, name, fmt.Sprintf("largest address %d, addressable now %d", largest, c.Sectors-1), false)
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
		note(ctx, func(o *Observed) { o.Hidden = &hidden })
	}
}

// hiddenText returns what follows a method because of sectors that the drive hides or may hide, "" if it says that
// there are none.
func hiddenText(method Method, h *evidence.Hidden) Method {
	if h == nil {
		return ""
	}
	name, _, _ := strings.Cut(string(method), "; ")
	return hiddenBytesText(name, h) + hiddenUnknownText(name, h)
}

func hiddenUnknownText(name string, h *evidence.Hidden) Method {
	var features []string
	if h.NativeUnknown {
		features = append(features, "an HPA or Accessible Max Address")
	}
	if h.OverlayUnknown {
		features = append(features, "a DCO")
	}
	if len(features) == 0 {
		return ""
	}
	erased := "if so, they were erased if the drive follows ACS, which was not verified"
	if evidence.UnreachedUnknown(name, h) {
		erased = "if so, they were not all erased"
	}
	return Method(fmt.Sprintf("; it is not known whether the drive hides bytes by %s: %s",
		strings.Join(features, " or "), erased))
}

func hiddenBytesText(name string, h *evidence.Hidden) Method {
	if h.Bytes() == 0 {
		return ""
	}
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
