package agent

import (
	"time"

	"ironroot/agent/inventory"
	"ironroot/netboot/lldp"
)

// neighbours returns the source of LLDP frames: the caller's, or a listener that runs only during a request.
func (a *agent) neighbours() inventory.Neighbours {
	if a.o.Machine.Neighbours != nil {
		return a.o.Machine.Neighbours
	}
	return lldp.OnDemand{Log: a.log, StopFirmware: a.o.Destructive}
}

// lldpTimeout reports whether the inventory contains LLDP, and how long it waits for frames.
func (a *agent) lldpTimeout() (timeout time.Duration, enabled bool) {
	c := a.config.Get()
	return c.LLDPTimeout, c.CollectLLDP
}
