// Package dhcp4 is a DHCPv4 client. It follows RFC 2131 (states, retransmission, renewal, rebinding), RFC 2132
// (options), RFC 3396 (long options), RFC 3397 (domain search), RFC 3442 (classless static routes), RFC 4390
// (InfiniBand) and RFC 5227 (address conflicts). Of RFC 4361 it follows only the format of the client identifier of
// InfiniBand ports: on Ethernet the identifier is hardware type and MAC address, as firmware and iPXE send it, so that
// a machine keeps the address that its boot loader had.
//
// A server's answers are validated: impossible values are dropped, see [Lease.Implausible] for the others.
//
// An address is probed for conflicts while it is in use already. A lease is not released, because the next boot of the
// machine asks for the same address.
//
// # Conflicts and renewed addresses
//
// RFC 5227 requires a client to wait some seconds before it uses a new address. That would delay every boot for a rare
// fault, so the address is used at once and probed meanwhile. If another machine answers, the address is declined and
// another one requested. After two declined addresses in a row, the next one is used despite a conflict, with a
// warning: a machine that can be reached at times can be repaired, and one without an address cannot.
//
// # Messages come from a library, the client does not
//
// Packages dhcp4 and dhcp6 encode and decode messages by insomniacslk/dhcp. Its clients were rejected: they start
// goroutines that do not contain panics, and they do not handle carriers, renewal and conflicts.
package dhcp4
