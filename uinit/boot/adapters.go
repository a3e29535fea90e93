//go:build linux

package boot

import (
	"context"
	"log/slog"

	"ironroot/agent/status"
	"ironroot/uinit/kmod"
)

// followAdapters updates the board's list of network adapters that lack a module. It starts when modules are
// loaded (settled) and returns when ctx ends. changed returns a channel that is closed at the next change of the
// links. Each adapter is logged once.
func followAdapters(
	ctx context.Context, settled <-chan struct{}, adapters func() ([]kmod.Adapter, error),
	changed func() <-chan struct{},
	board *status.Board, log *slog.Logger,
) error {
	select {
	case <-settled:
	case <-ctx.Done():
		return nil
	}
	logged := map[string]bool{}
	for {
		next := changed()
		found, err := adapters()
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
				log.Warn("network adapter without a link", "address", a.Address, "pci_id", a.ID, "reason", shown.Text())
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
