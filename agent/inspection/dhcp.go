package inspection

import (
	"context"
	"strings"
	"time"

	"ironroot/agent/inventory"
)

// waitDHCP waits until the interfaces the inspection is about have an IPv4 address: the one booted from, or all when the
// configuration says so. That they get none in time is only a warning. An error is that of ctx.
func (i *inspection) waitDHCP(ctx context.Context) error {
	c := i.Config.Get()
	if c.InspectionDHCPWaitTimeout <= 0 || i.Network == nil {
		return nil
	}
	want := func(inventory.Interface) bool { return true }
	if !c.InspectionDHCPAllInterfaces {
		mac := bootMAC(c.Params["BOOTIF"])
		if mac == "" {
			i.Log.Warn("no BOOTIF parameter, inspection does not wait for DHCP")
			return nil
		}
		want = func(n inventory.Interface) bool { return n.MACAddress == mac }
	}
	started := time.Now()
	timeout, cancel := context.WithTimeout(ctx, c.InspectionDHCPWaitTimeout)
	defer cancel()
	for {
		changed := i.Network.Changed() // before the look, so that no change is missed
		if i.haveAddresses(ctx, want) {
			i.Log.Info("interfaces have addresses", "waited", time.Since(started).Round(time.Millisecond))
			return nil
		}
		select {
		case <-changed:
		case <-timeout.Done():
			if ctx.Err() == nil {
				i.Log.Warn("not all interfaces got an address in time", "waited", c.InspectionDHCPWaitTimeout)
			}
			return ctx.Err()
		}
	}
}

// haveAddresses reports whether there is an interface that is wanted and all such have an IPv4 address.
func (i *inspection) haveAddresses(ctx context.Context, want func(inventory.Interface) bool) bool {
	interfaces, err := i.interfaces(ctx)
	if err != nil {
		i.Log.Warn("interfaces not readable", "err", err)
		return false
	}
	found := false
	for _, n := range interfaces {
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

// bootMAC makes a MAC address of a BOOTIF parameter: pxelinux puts the hardware type before it and dashes between
// ("01-aa-bb-cc-dd-ee-ff"), others give it plainly.
func bootMAC(bootif string) string {
	mac := strings.ToLower(strings.ReplaceAll(bootif, "-", ":"))
	if strings.Count(mac, ":") == 6 {
		_, mac, _ = strings.Cut(mac, ":")
	}
	return mac
}
