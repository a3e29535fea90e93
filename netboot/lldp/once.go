package lldp

import (
	"context"
	"fmt"
	"log/slog"
	"net"
	"time"

	"github.com/vishvananda/netlink"

	"ironroot/netboot/listing"
)

// OnDemand listens only during a call, for processes that do not run the machine's network. It needs CAP_NET_RAW.
type OnDemand struct {
	Log *slog.Logger // may be nil
	// StopFirmware disables the LLDP agents of network cards while it waits for frames: see [Firmware].
	StopFirmware bool
}

// WaitLLDP listens on the machine's current Ethernet links until [Listener.Wait] returns. It does not wait for links
// without a carrier. The error is ctx's, or the reason why no link could be opened.
func (o OnDemand) WaitLLDP(ctx context.Context, quiet time.Duration) (map[string]Frame, error) {
	links, err := listing.Whole(netlink.LinkList)
	if err != nil {
		return nil, fmt.Errorf("list links for LLDP: %w", err)
	}
	l := New(o.Log)
	defer l.Close()
	firmware := &Firmware{Log: l.log}
	defer func() {
		if err := firmware.Restore(); err != nil {
			l.log.Warn("LLDP agent of network card not restored", "err", err)
		}
	}()
	for _, link := range links {
		attrs := link.Attrs()
		if attrs.Flags&net.FlagLoopback != 0 || attrs.EncapType != "ether" {
			continue
		}
		l.Open(attrs.Index, attrs.Name)
		if o.StopFirmware {
			if err := firmware.Stop(attrs.Name); err != nil {
				l.log.Warn("network card may consume LLDP frames", "interface", attrs.Name, "err", err)
			}
		}
		l.Expect(attrs.Index, attrs.Flags&net.FlagUp != 0 && attrs.RawFlags&flagCarrier != 0)
	}
	if len(l.ports) == 0 && l.failed != nil {
		return nil, l.failed
	}
	return l.Wait(ctx, quiet)
}
