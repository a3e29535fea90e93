package netboot

import (
	"context"
	"fmt"
	"slices"
	"time"

	"ironroot/netboot/lldp"
)

// LLDP returns the newest LLDP frame of every link by the link's name. The frame of a link on which none was heard has
// no TLVs.
func (n *Network) LLDP() map[string]lldp.Frame { return n.lldp.Frames() }

// WaitLLDP waits until an LLDP frame was heard on every link that has a carrier or may still get one, and returns what
// LLDP does. What was heard before the call is not waited for, and silence before it counts. It gives up when quiet has
// passed since the last of the silent links got its carrier, and since a link was last heard for the first time; that is
// no error, and such a link is not waited for again until its carrier comes back.
func (n *Network) WaitLLDP(ctx context.Context, quiet time.Duration) (map[string]lldp.Frame, error) {
	frames, err := n.lldp.Wait(ctx, quiet)
	if err != nil {
		return frames, fmt.Errorf("network: %w", err)
	}
	return frames, nil
}

// hear takes over what the neighbours have said by now.
func (n *Network) hear() {
	frames := n.lldp.Frames()
	n.mu.Lock()
	defer n.mu.Unlock()
	for _, l := range n.links {
		frame := frames[l.state.Name]
		if ids := frame.VLANs(); len(ids) > 0 && !slices.Equal(ids, l.announcedVLANs) {
			l.announcedVLANs = ids
			signal(l.announced)
		}
		neighbour := frame.Neighbour()
		if neighbour != l.state.History.Neighbour {
			l.state.History.Neighbour = neighbour
			n.tell()
		}
	}
}

// settle notes that a link has its carrier, or is not likely to get one.
func (n *Network) settle(l *link) {
	n.mu.Lock()
	defer n.mu.Unlock()
	l.settled = true
	if l.state.Carrier {
		n.lldp.Begin(l.state.Index)
	}
	n.expectLLDP(l)
}

// expectLLDP tells the listener whether a neighbour may be heard on a link; mu is held.
func (n *Network) expectLLDP(l *link) {
	n.lldp.Expect(l.state.Index, l.state.Carrier || !l.settled)
}

// firmwareLLDP switches the LLDP agents inside network cards off and on: see [lldp.Firmware].
type firmwareLLDP interface {
	Stop(link string) error
	Restore() error
	RestorePersistent() error
}

// stopFirmwareLLDP switches off the LLDP agent in the link's card if the options request it. A failure is logged, and
// the link is used nevertheless.
func (l *link) stopFirmwareLLDP() {
	if l.network.firmware == nil {
		return
	}
	if err := l.network.firmware.Stop(l.name()); err != nil {
		l.network.log.Warn("the card may keep LLDP frames to itself", "interface", l.name(), "err", err)
	}
}

// RestoreFirmwareLLDP switches on the LLDP agents in network cards that were switched off, for the operating system
// that runs next. If persistent, it does so only for agents that would stay off over a power cycle, and interrupts no
// link.
func (n *Network) RestoreFirmwareLLDP(persistent bool) error {
	switch {
	case n.firmware == nil:
		return nil
	case persistent:
		return n.firmware.RestorePersistent()
	}
	return n.firmware.Restore()
}
