package inspection

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"

	"ironroot/agent/config"
	"ironroot/agent/inventory"
	"ironroot/storage/sysfs"
)

// WantsLLDP reports whether the configuration enables LLDP, for the inventory or by the collector.
func WantsLLDP(c *config.Config) bool {
	if c.CollectLLDP {
		return true
	}
	for name := range strings.SplitSeq(c.InspectionCollectors, ",") {
		if strings.TrimSpace(name) == "lldp" {
			return true
		}
	}
	return false
}

// collectLLDP adds the LLDP frames of every interface except loopback. If receiving fails, it logs the error and adds
// empty lists, so that Ironic does not reject the other data.
func collectLLDP(ctx context.Context, i *inspection) error {
	names, err := interfaceNames(i.System)
	if err != nil {
		return err
	}
	if i.Neighbours == nil {
		return errors.New("no LLDP listener")
	}
	frames, err := i.Neighbours.WaitLLDP(ctx, i.Config.Get().LLDPTimeout)
	if ctx.Err() != nil {
		return ctx.Err()
	}
	if err != nil {
		i.Log.Warn("inspection without all LLDP frames", "err", err)
	}
	raw := make(map[string][][2]any, len(names))
	for _, name := range names {
		raw[name] = inventory.LLDP(frames[name])
	}
	i.set("lldp_raw", raw)
	return nil
}

func interfaceNames(sys sysfs.Root) ([]string, error) {
	entries, err := os.ReadDir(sys.Sys("class/net"))
	if err != nil {
		return nil, fmt.Errorf("list network interfaces: %w", err)
	}
	var names []string
	for _, entry := range entries {
		// With a bonding driver the directory has a file as well.
		if entry.Name() != "lo" && entry.Name() != "bonding_masters" {
			names = append(names, entry.Name())
		}
	}
	return names, nil
}
