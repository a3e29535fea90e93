//go:build linux

// Package ifconfig configures network interfaces over rtnetlink(7): it applies the difference between the present and
// the wanted addresses, routes and MTU. Addresses and routes that both have stay untouched, so that connections
// survive.
//
// # Former addresses stay until their lease expires
//
// If a DHCP server assigns another address on renewal, the lease of the former one is still valid for the rest of its
// time. The address stays on the link, deprecated, until then: Ironic identifies the agent by the callback URL of its
// first heartbeat and rejects another one, so its commands still go to the former address. After the lease has expired,
// another machine can have the address.
package ifconfig
