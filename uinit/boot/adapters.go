//go:build linux

package boot

import (
	"context"

	"ironroot/agent/status"
)

// changing notifies of changes of the links. *netboot.Network implements it.
type changing interface{ Changed() <-chan struct{} }

// followAdapters updates the board's list of network adapters that lack a module at each change of the links. It starts
// when modules are loaded and returns when ctx ends. Each adapter is logged once.
func followAdapters(ctx context.Context, m *Machine, network changing, board *status.Board) error {
	select {
	case <-m.Settled:
	case <-ctx.Done():
		return nil
	}
	logged := map[string]bool{}
	for {
		next := network.Changed()
		found, err := m.modules.Adapters("/sys")
		if err != nil {
			return err
		}
		list := make([]status.Adapter, 0, len(found))
		for _, a := range found {
			shown := status.Adapter{
				Address: a.Address, ID: a.ID, Missing: a.Missing, Present: a.Present, InfiniBand: a.InfiniBand,
			}
			list = append(list, shown)
			if !logged[a.Address] {
				logged[a.Address] = true
				m.Log.Warn("network adapter without a link", "address", a.Address, "pci_id", a.ID,
					"reason", shown.Text())
			}
		}
		board.Adapters(list)
		select {
		case <-next:
		case <-ctx.Done():
			return nil
		}
	}
}
