package boot

import (
	"context"

	"ironroot/netboot"
)

// Agent returns the work of the ramdisk: the network, and the deploy agent.
func Agent() Func {
	var network *netboot.Network // lives on when the agent is run again
	return func(ctx context.Context, m *Machine) error {
		if network == nil {
			started, err := netboot.Start(ctx, netboot.Config{Log: m.Log})
			if err != nil {
				return err
			}
			network = started
		}
		if err := network.WaitAddress(ctx); err != nil {
			return err
		}
		m.Log.Info("network is up", "uptime", uptime())
		<-ctx.Done()
		return ctx.Err()
	}
}
