// Command agent is a ramdisk with the real agent. It panics twice: in the goroutine of the first connection to Ironic,
// and in the agent's goroutine when the first lookup begins.
package main

import (
	"context"
	"net"
	"sync/atomic"
	"time"

	"ironroot/agent"
	"ironroot/agent/ironic"
	"ironroot/agent/status"
	"ironroot/uinit/boot"
)

// drivers panic when the first lookup begins.
type drivers struct {
	agent.Drivers
	lookups *atomic.Int32
}

func (d drivers) Enter(phase status.Phase) {
	if phase == status.Lookup && d.lookups.Add(1) == 1 {
		panic("the agent exploded")
	}
	d.Drivers.Enter(phase)
}

// dialer panics at the first connection.
type dialer struct {
	ironic.Dialer
	dials *atomic.Int32
}

func (d dialer) DialContext(ctx context.Context, network, address string) (net.Conn, error) {
	if d.dials.Add(1) == 1 {
		panic("the connection exploded")
	}
	return d.Dialer.DialContext(ctx, network, address)
}

func main() {
	var lookups, dials atomic.Int32
	work := boot.AgentWith(func(o *agent.Options) {
		o.Pause = time.Second
		o.Machine.Drivers = drivers{o.Machine.Drivers, &lookups}
		o.Dialer = dialer{o.Dialer, &dials}
	})
	boot.Main(work)
}
