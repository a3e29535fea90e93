package boot

import (
	"context"
	"log/slog"
)

// Machine is what boot hands to the function it runs: the started machine.
type Machine struct {
	Params  map[string]string // kernel parameters, last one wins
	Log     *slog.Logger
	Settled <-chan struct{} // closed once no module is waiting to be loaded for a device that was there at boot
}

// Func is the work of the ramdisk. It should not return: after an error it is run again, after nil the machine idles.
type Func func(ctx context.Context, m *Machine) error

// Main boots the machine and runs f. It never returns.
func Main(f Func) {
	select {}
}

// Agent runs the deploy agent.
func Agent(ctx context.Context, m *Machine) error {
	<-ctx.Done()
	return ctx.Err()
}
