//go:build linux

package netboot

import (
	"slices"

	"ironroot/netboot/lldp"
)

// noteNeighbours records the neighbours of all links.
func (w *watcher) noteNeighbours() {
	frames := w.lldp.Frames()
	for _, a := range w.used {
		noteNeighbour(a.link, frames[a.link.name()])
	}
}

// noteNeighbour records the neighbour of a link and the VLANs that it announces.
func noteNeighbour(l *link, frame lldp.Frame) {
	now := l.State()
	if neighbour := frame.Neighbour(); neighbour != now.link.History.Neighbour {
		l.Change(func(s *state) { s.link.History.Neighbour = neighbour })
	}
	if ids := frame.VLANs(); len(ids) > 0 && !slices.Equal(ids, now.vlans) {
		l.Change(func(s *state) { s.vlans = ids })
		l.announced.send()
	}
}

// expectLLDP tells the listener whether to expect a frame on a link.
func expectLLDP(listener *lldp.Listener, s *state) {
	listener.Expect(s.link.Index, s.link.Carrier || !s.awaited)
}

// firmwareLLDP switches the LLDP agents inside network cards off and on: see [lldp.Firmware].
type firmwareLLDP interface {
	Stop(link string) error
	Restore() error
	RestorePersistent() error
}

// stopFirmwareLLDP switches off the LLDP agent in the card of a link if the options request it. A failure is logged,
// and the link is used nevertheless.
func (s *shared) stopFirmwareLLDP(name string) {
	if s.firmware == nil {
		return
	}
	if err := s.firmware.Stop(name); err != nil {
		s.log.Warn("LLDP agent of network card not stopped", "interface", name, "err", err)
	}
}
