// Package route finds the way to a single address: the kernel's or, if that leads nowhere, another link.
//
// # Every link is tried
//
// A machine on a provisioning network is often connected to other networks. Their DHCP servers can name a router
// without a route to the wanted server, or a subnet that is far too large; the kernel then sends everything there. The
// leases do not show which server is wrong, but a connection does. If the routes of the kernel do not reach the address
// within a second, each link is tried separately, and the one that works gets a route to this address only.
package route
