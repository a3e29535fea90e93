package agent

import (
	"time"

	"ironroot/agent/inventory"
	"ironroot/netboot/lldp"
)

// neighbours returns the source of LLDP frames: the caller's, or a listener that runs only during a request.
func (a *agent) neighbours() inventory.Neighbours {
	if a.o.Neighbours != nil {
		return a.o.Neighbours
	}
	return lldp.OnDemand{Log: a.log, StopFirmware: a.o.Destructive}
}

// lldpTimeout reports whether the inventory has LLDP in it, and how long it waits for that.
func (a *agent) lldpTimeout() (quiet time.Duration, wanted bool) {
	c := a.config.Get()
	return c.LLDPTimeout, c.CollectLLDP
}
