package inventory

import (
	"context"
	"encoding/hex"
	"time"

	"ironroot/netboot/lldp"
)

// Neighbours hears LLDP frames.
type Neighbours interface {
	// WaitLLDP returns the frames by interface name, once every interface was heard or quiet has passed.
	WaitLLDP(ctx context.Context, quiet time.Duration) (map[string]lldp.Frame, error)
}

// LLDP is a frame in the protocol's form: a list of pairs of a TLV's type and its value in lower-case hexadecimal. It
// is never null: an empty list stands for a link on which nothing was heard.
func LLDP(f lldp.Frame) [][2]any {
	pairs := make([][2]any, len(f.TLVs))
	for i, t := range f.TLVs {
		pairs[i] = [2]any{t.Type, hex.EncodeToString(t.Value)}
	}
	return pairs
}

// hearNeighbours fills in the interfaces' LLDP where the configuration wants it in the inventory. Without CAP_NET_RAW
// that is a warning and an empty list.
func (s *Source) hearNeighbours(ctx context.Context, interfaces []Interface) {
	if s.o.Neighbours == nil || s.o.LLDPTimeout == nil {
		return
	}
	timeout, wanted := s.o.LLDPTimeout()
	if !wanted {
		return
	}
	frames, err := s.o.Neighbours.WaitLLDP(ctx, timeout)
	if err != nil {
		s.o.Log.Warn("inventory without all LLDP frames", "err", err)
	}
	for i := range interfaces {
		interfaces[i].LLDP = LLDP(frames[interfaces[i].Name])
	}
}
