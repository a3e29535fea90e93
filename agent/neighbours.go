package agent

import (
	"time"

	"ironroot/agent/inventory"
	"ironroot/netboot/lldp"
)

// neighbours is who hears LLDP frames: the machine's network, or a listener for the time of the question.
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
