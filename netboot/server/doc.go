// Package server provides the servers of a network boot: a small DHCPv4 server that assigns addresses and boot files
// by client architecture (RFC 2131, RFC 2132, RFC 3442, RFC 4578), a read-only TFTP server (RFC 1350), an HTTP file
// server, iPXE scripts, and router advertisements without a router (RFC 4861).
//
// Each server is bound to a single interface or address, so that it never replies on other networks. Limits: one
// subnet per DHCP server, no relay agents, leases are stored in memory only.
package server
