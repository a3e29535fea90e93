// Package server provides the servers of a network boot: a small DHCPv4 server that assigns addresses and boot files
// by client architecture (RFC 2131, RFC 2132, RFC 3442, RFC 4578), a read-only TFTP server (RFC 1350), an HTTP file
// server, iPXE scripts, and router advertisements without a router (RFC 4861).
//
// Each server is bound to a single interface or address, so that it never replies on other networks. Limits: one
// subnet per DHCP server, no relay agents, leases are stored in memory only.
//
// # Limits are per address
//
// Transfers and connections are limited for each address, so that one client cannot take all of them, as it could with
// a limit of the total (netutil.LimitListener). In a full pool, an address with few of them displaces a transfer or
// connection of the address with the most. The limits of the agent's API (package admission) do not fit: they prefer
// peers that have sent a token, and process the data of others one connection at a time. Clients of these servers have
// no token, and a transfer by TFTP is no connection.
//
// Requests by TFTP can have a forged source, but a forged source acknowledges no block. A transfer without an
// acknowledged block is therefore in a pool of its own. The TFTP library cannot end a displaced transfer whose client
// is silent. It runs until its last retry, so the number of all transfers that run is limited, too. The library has no
// windows (RFC 7440) and ignores the option, as RFC 2347 allows. Only boot loaders of at most 3 MB are fetched by TFTP;
// kernel and initramfs come by HTTP.
package server
