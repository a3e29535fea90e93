package inventory

import (
	"context"
	"encoding/hex"
	"time"

	"ironroot/netboot/lldp"
)

// Neighbours receives LLDP frames.
type Neighbours interface {
	// WaitLLDP returns the frames by interface name, once every interface has received one or quiet has passed.
	WaitLLDP(ctx context.Context, quiet time.Duration) (map[string]lldp.Frame, error)
}

// LLDP is a frame in the protocol's form: a list of pairs of a TLV's type and its value in lower-case hexadecimal. It
// is never null: an empty list means that the link received no frame.
func LLDP(f lldp.Frame) [][2]any {
	pairs := make([][2]any, len(f.TLVs))
	for i, t := range f.TLVs {
		pairs[i] = [2]any{t.Type, hex.EncodeToString(t.Value)}
	}
	return pairs
}

// hearNeighbours adds LLDP to the interfaces if the configuration enables it for the inventory. Without CAP_NET_RAW
// it logs a warning and adds empty lists.
func (s *Source) hearNeighbours(ctx context.Context, interfaces []Interface) {
	if s.o.Neighbours == nil || s.o.Config == nil {
		return
	}
	c := s.o.Config.Get()
	if !c.CollectLLDP {
		return
	}
	frames, err := s.o.Neighbours.WaitLLDP(ctx, c.LLDPTimeout)
	if err != nil {
		s.o.Log.Warn("inventory without all LLDP frames", "err", err)
	}
	for i := range interfaces {
		interfaces[i].LLDP = LLDP(frames[interfaces[i].Name])
	}
}
