// Package server is the other side of a network boot: a small DHCPv4 server that hands out addresses and boot files
// by client architecture (RFC 2131, RFC 2132, RFC 3442, RFC 4578), a read-only TFTP server (RFC 1350), an HTTP file
// server, iPXE scripts, and router advertisements that say there is no IPv6 router (RFC 4861).
//
// Each server is bound to the one interface and address it is given, so that it never answers a network that it was
// not started for. Limits: one subnet for each DHCP server, no relay agents, leases live in memory only.
package server
