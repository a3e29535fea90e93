package boot

import (
	"context"
	"log/slog"

	"ironroot/netboot"

	"golang.org/x/sys/unix"
)

// network is what of netboot.Network tells of host names.
type network interface {
	Changed() <-chan struct{}
	Links() []netboot.Link
}

// followHostname gives the machine the name that a DHCP server has for it, and each later one, until ctx ends. Where
// several links got a name, the first link counts.
func followHostname(ctx context.Context, n network, set func(name string) error, log *slog.Logger) {
	current := ""
	for {
		changed := n.Changed()
		if name := leasedName(n.Links()); name != "" && name != current {
			current = name
			if err := set(name); err != nil {
				log.Warn("host name not used", "hostname", name, "err", err)
			} else {
				log.Info("host name", "hostname", name)
			}
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return
		}
	}
}

// leasedName returns the host name of the first link that has one.
func leasedName(links []netboot.Link) string {
	for _, l := range links {
		if l.Lease != nil && l.Lease.Hostname != "" {
			return l.Lease.Hostname
		}
	}
	return ""
}

// setHostname sets the kernel's host name, which has 64 bytes at most.
func setHostname(name string) error { return unix.Sethostname([]byte(name)) }
