//go:build linux

package boot

import (
	"context"
	"errors"
	"io/fs"
	"log/slog"
	"path/filepath"
	"sync"
	"sync/atomic"

	"ironroot/agent/config"
	"ironroot/agent/inspection"
	"ironroot/agent/status"
	"ironroot/agent/vmedia"
	"ironroot/internal/bounded"
	"ironroot/internal/goroutine"
	"ironroot/netboot"
	"ironroot/netboot/networkdata"
	"ironroot/netboot/vlan"
)

// archivedFiles are the paths of network data in an archive that is appended to the initramfs: the path where images of
// ironic-python-agent mount the config drive, and the path on the drive.
var archivedFiles = []string{"mnt/config/openstack/latest/network_data.json", "openstack/latest/network_data.json"}

// maxNetworkData limits such a file, in bytes.
const maxNetworkData = 4 << 20

// networkConfig returns the network configuration in the agent's options.
func networkConfig(settings *config.Config, log *slog.Logger) netboot.Config {
	vlans, err := vlan.Parse(settings.EnableVLANInterfaces)
	if err != nil {
		log.Warn("part of enable_vlan_interfaces ignored", "err", err)
	}
	return netboot.Config{Log: log, VLANs: vlans, StopFirmwareLLDP: inspection.WantsLLDP(settings)}
}

// startNetwork starts the network with the static data of an archive or of the config drive. If the kernel command
// line announces the drive, links are set up at once, but DHCP waits until the drive was searched for. Otherwise
// nothing waits, and data that is found later is used from then on. static is set when there is static data.
func startNetwork(
	ctx context.Context, m *Machine, media *vmedia.Media, c netboot.Config, static *atomic.Bool, board *status.Board,
) (*netboot.Network, error) {
	if c.Data = archivedData("/", m.Log, board); c.Data != nil {
		static.Store(true)
		return netboot.Start(ctx, c)
	}
	found := make(chan struct{})
	if media.NetworkDataExpected() {
		c.Wait = found
	}
	network, err := netboot.Start(ctx, c)
	if err != nil {
		return nil, err
	}
	stopWaiting := sync.OnceFunc(func() { close(found) })
	goroutine.Go(func() error {
		document, err := media.NetworkData(ctx, stopWaiting)
		if data := staticData(document, m.Log, board); data != nil {
			static.Store(true)
			network.Configure(data)
		}
		return err
	}, func(err error) {
		if err != nil && ctx.Err() == nil {
			m.Log.Warn("network data not readable, using DHCP", "err", err)
		}
		stopWaiting()
	})
	return network, nil
}

// archivedData returns the network data of an archive below root, and nil if there is none.
func archivedData(root string, log *slog.Logger, board *status.Board) *networkdata.Data {
	for _, name := range archivedFiles {
		path := filepath.Join(root, name)
		document, err := bounded.ReadFile(path, maxNetworkData)
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			log.Warn("network data not readable, using DHCP", "file", path, "err", err)
			board.Problem("network data", err)
			continue
		}
		log.Info("network data found in the archive", "file", path, "bytes", len(document))
		return staticData(document, log, board)
	}
	return nil
}

// staticData parses network data. It logs the parts that cannot be used, and shows them on the board. It returns nil if
// no part can be used.
func staticData(document []byte, log *slog.Logger, board *status.Board) *networkdata.Data {
	if len(document) == 0 {
		return nil
	}
	data, err := networkdata.Parse(document)
	if err != nil {
		log.Warn("network data not usable, using DHCP", "err", err)
		board.Problem("network data", err)
		return nil
	}
	board.Problem("network data", errors.Join(data.Problems...))
	for _, problem := range data.Problems {
		log.Warn("part of the network data ignored", "err", problem)
	}
	if len(data.Links) == 0 && len(data.DNS) == 0 {
		return nil
	}
	return data
}
