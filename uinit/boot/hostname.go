//go:build linux

package boot

import (
	"context"
	"log/slog"

	"golang.org/x/sys/unix"

	"ironroot/netboot/snapshot"
)

// network is the part of netboot.Network that provides host names.
type network interface {
	Changed() <-chan struct{}
	Links() []snapshot.Link
}

// followHostname sets the host name that a DHCP server assigns, and each later one, until ctx ends. If several links
// have a name, the first link's is used.
func followHostname(ctx context.Context, n network, set func(name string) error, log *slog.Logger) {
	current := ""
	for {
		changed := n.Changed()
		if name := leasedName(n.Links()); name != "" && name != current {
			current = name
			if err := set(name); err != nil {
				log.Warn("host name not set", "hostname", name, "err", err)
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
func leasedName(links []snapshot.Link) string {
	for _, l := range links {
		if l.Lease != nil && l.Lease.Hostname != "" {
			return l.Lease.Hostname
		}
	}
	return ""
}

// setHostname sets the kernel's host name, which is limited to 64 bytes.
func setHostname(name string) error { return unix.Sethostname([]byte(name)) }
