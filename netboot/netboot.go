package netboot

import (
	"context"
	"errors"
	"log/slog"
	"net"
	"net/netip"
	"time"
)

// Config says which links to use and where to write what was learnt.
type Config struct {
	// Log receives what happens to links and leases; nil discards it.
	Log *slog.Logger
	// Interface decides which links are used. Nil means every physical Ethernet link. Loopback is never asked about.
	Interface func(name string) bool
	// ResolvConf is the resolver's file; "" means /etc/resolv.conf.
	ResolvConf string
}

// Link is what is known of one link at one moment.
type Link struct {
	Name      string
	Index     int
	MAC       net.HardwareAddr
	MTU       int  // bytes
	Up        bool // administratively up
	Carrier   bool // the cable's other end answers
	Addresses []netip.Prefix
	Lease     *Lease // nil while there is none
	Err       error  // the latest failure, nil once it went well
}

// Lease is what a DHCPv4 server granted, after validation: values that could not be used are left out.
type Lease struct {
	Address  netip.Prefix
	Server   netip.Addr
	Routers  []netip.Addr
	Routes   []Route
	DNS      []netip.Addr
	Search   []string
	NTP      []netip.Addr
	Hostname string
	MTU      int           // bytes, 0 = not given
	Obtained time.Time     // when the server acknowledged it
	Renew    time.Duration // T1, counted from Obtained
	Rebind   time.Duration // T2
	Duration time.Duration // whole lease; Forever when it does not end
}

// Forever is the Duration of a lease without end.
const Forever = time.Duration(1<<63 - 1)

// Route is one route of a link.
type Route struct {
	Destination netip.Prefix
	Gateway     netip.Addr // invalid for a destination on the link itself
}

// Network is the running network. Its methods may be called from any goroutine.
type Network struct{}

// Start begins to raise links and returns at once; links that appear later are used when they appear. The network
// runs until ctx ends, which leaves the links as they are.
func Start(ctx context.Context, config Config) (*Network, error) {
	return nil, errors.New("netboot: not written yet")
}

// Links returns every link in use, ordered by kernel index.
func (n *Network) Links() []Link { return nil }

// Changed returns a channel that is closed at the next change of any link.
func (n *Network) Changed() <-chan struct{} { return nil }

// WaitAddress waits until some link has an address that other machines can reach.
func (n *Network) WaitAddress(ctx context.Context) error {
	return errors.New("netboot: not written yet")
}

// Down stops everything and takes every link but loopback down.
func (n *Network) Down(ctx context.Context) error { return errors.New("netboot: not written yet") }
