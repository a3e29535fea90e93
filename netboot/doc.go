// Package netboot configures the network of a booting machine: it raises each physical link as soon as its driver
// reports it, requests addresses on all links concurrently, and keeps addresses, routes and name servers in line with
// the leases. It also receives the LLDP frames of the links' neighbours (package lldp).
//
// Package events receives the kernel's events, and package listing reads its lists of links and addresses. Each
// link publishes copies of its state. Package snapshot describes links to the users of the network.
//
// Packages dhcp4 and dhcp6 are the DHCP clients. Each link has its own. The kernel forms addresses and routes of
// router advertisements (SLAAC, RFC 4861 and 4862); package radv receives the rest: name servers (RFC 8106), and
// whether there is DHCPv6. Package ifconfig applies addresses and routes, package resolver writes the name servers.
//
// Static data (package networkdata) assigns roles to links (package plan): static addresses, member of a bond, parent
// of VLANs. Bonds and VLANs are created (packages bond and vlan). Links that the data does not name use DHCP. If a
// part of the data fails, the others are used.
//
// VLANs can also be requested by name or announced by a switch. Their interfaces are used like physical links.
//
// Server replies are validated: impossible values are dropped, implausible ones are logged, and an address that
// another machine has is declined (RFC 5227, package arp). If the routes of a server lead nowhere, DialContext finds
// the link that leads to an address (packages route and alternatives).
//
// Package sntp queries a time server. Package server is the other side, for tests and demonstrations.
//
// The network needs Linux. The packages that the agent also uses without it build on other platforms, such as snapshot
// and route.
//
// # The state of a link
//
// The events of the kernel, the DHCP clients of both families, router advertisements and LLDP all change the state of a
// link. Each change is a function that is applied to a copy, which is then published. Reading needs no lock, and a
// snapshot does not change. A change does not configure the kernel: a driver can take seconds for a new MTU, and
// meanwhile the goroutine that follows the events of the kernel would wait. Addresses and routes are changed by the
// goroutines of the link's role, one each for DHCPv4, DHCPv6 and the static data. Only that goroutine uses the list of
// what it configured, so the list needs no lock. Routes that connections of the agent add are a list with a lock,
// because any goroutine connects.
package netboot
