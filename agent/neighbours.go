package agent

import (
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
