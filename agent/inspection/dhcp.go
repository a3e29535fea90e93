package inspection

import (
	"context"
	"strings"
	"time"

	"ironroot/agent/inventory"
)

// waitDHCP waits until the boot interface has an IPv4 address, or all interfaces if the configuration requires that. A
// timeout is only logged. The error is ctx's.
func (i *inspection) waitDHCP(ctx context.Context) error {
	c := i.Config.Get()
	if c.InspectionDHCPWaitTimeout <= 0 || i.Network == nil {
		return nil
	}
	want := func(inventory.Interface) bool { return true }
	if !c.InspectionDHCPAllInterfaces {
		mac := bootMAC(c.Params["BOOTIF"])
		if mac == "" {
			i.Log.Warn("no BOOTIF parameter, not waiting for DHCP")
			return nil
		}
		want = func(n inventory.Interface) bool { return n.MACAddress == mac }
	}
	started := time.Now()
	timeout, cancel := context.WithTimeout(ctx, c.InspectionDHCPWaitTimeout)
	defer cancel()
	for {
		changed := i.Network.Changed() // before reading the addresses, so that no change is missed
		if i.haveAddresses(ctx, want) {
			i.Log.Info("interfaces have addresses", "duration", time.Since(started).Round(time.Millisecond))
			return nil
		}
		select {
		case <-changed:
		case <-timeout.Done():
			if ctx.Err() == nil {
				i.Log.Warn("not all interfaces got an address in time", "timeout", c.InspectionDHCPWaitTimeout)
			}
			return ctx.Err()
		}
	}
}

// haveAddresses reports whether at least one interface is wanted and all wanted ones have an IPv4 address.
func (i *inspection) haveAddresses(ctx context.Context, want func(inventory.Interface) bool) bool {
	list, err := i.links.Interfaces(ctx)
	if err != nil {
		i.Log.Warn("interfaces not listed", "err", err)
		return false
	}
	found := false
	for _, n := range list {
		if !want(n) {
			continue
		}
		if n.IPv4Address == nil {
			return false
		}
		found = true
	}
	return found
}

// bootMAC returns the MAC address in a BOOTIF parameter. pxelinux prepends the hardware type and separates by dashes
// ("01-aa-bb-cc-dd-ee-ff"); other boot loaders use the usual form.
func bootMAC(bootif string) string {
	mac := strings.ToLower(strings.ReplaceAll(bootif, "-", ":"))
	if strings.Count(mac, ":") == 6 {
		_, mac, _ = strings.Cut(mac, ":")
	}
	return mac
}
