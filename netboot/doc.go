// Package netboot is the network of a booting machine: it raises every physical link as soon as its driver shows it,
// asks for an IPv4 address on all of them at once, and keeps addresses, routes and name servers true to the leases
// for as long as it runs. Meanwhile it hears who the neighbours of the links are (package lldp).
//
// The DHCPv4 client follows RFC 2131 (states, retransmission, renewal, rebinding), RFC 2132 (options), RFC 3397
// (domain search), RFC 3442 (classless static routes), RFC 4361 only in that the client identifier is hardware type
// and MAC address, the one firmware and iPXE send, so that a machine keeps its address from the boot loader on.
//
// IPv6 addresses and routes that routers advertise (SLAAC, RFC 4861 and 4862) are the kernel's; what it leaves over is
// taken from its events: name servers (RFC 8106), and whether there is DHCPv6 to be asked, with addresses or without
// (RFC 8415). Nobody waits for a router. The DHCPv6 client is known by its MAC address (DUID-LL).
//
// Static data (package networkdata) gives links roles: static addresses, a bond's member, a VLAN's carrier. What it names is
// made, what it does not name asks by DHCP, and no part of it that fails takes another part with it.
//
// VLANs can also be requested by name or announced by a switch. Their interfaces are used like physical links.
//
// What servers say is doubted: what cannot be is left out, what is unlikely is warned of, and an address that somebody
// else has is given back (RFC 5227). Where their routes lead nowhere, Dial finds the link that leads there.
//
// Package sntp queries a time server. Package server is the other side, for tests and demonstrations.
//
// The network needs Linux. The packages that the agent also uses without it build on other platforms, such as snapshot
// and route.
package netboot
