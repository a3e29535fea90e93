// Package admission limits the connections of a listener that anyone on the network can reach.
//
// Connections are kept in two pools. The untrusted pool contains connections of peers that have not presented a valid
// token. The trusted pool contains connections of the addresses that presented one most recently, so that a flood of
// untrusted connections cannot displace them. No address is known in advance: the first request with a valid token
// makes a peer trusted.
//
// Both pools limit the connections in total and per peer. A full pool admits a new connection by closing an
// unauthenticated one: the oldest of the peer that recently opened the most connections. A peer that opened more than
// all others closes its own. A flood therefore closes its own connections, not a conductor's first request. Connections
// that presented a token are closed only if they are idle and no other can be closed.
//
// Data of untrusted peers, mainly TLS handshakes, is processed one connection at a time. Trusted peers do not wait.
//
// An attacker with more addresses than connections in the pool, each of which opens few, cannot be distinguished from a
// new conductor. IPv6 addresses can if they are in another network: connections are counted per network (/64) first.
//
// # Rejected alternatives
//
// The address of the conductor is not known in advance: there are several conductors, proxies, NAT and virtual
// addresses. To reject new connections when the pool is full was not chosen, because the first peer could then exclude
// all others. To close the oldest connection always would close the conductor's within a fraction of a second. With the
// rule above an attacker must open connections repeatedly to fill the pool, while a conductor that has not sent a token
// yet opens one connection and finishes its request.
//
// # Order of work
//
// A handshake takes more processor time than everything else. The data of the untrusted peer with the fewest
// connections is processed first, and among equals the one that has waited for the shortest time, because the older
// ones are closed before they would be answered. From the 51st request without a token within a second on, package api
// delays answers by a second, but not those to a trusted peer of an old Ironic that reads records. Requests without a
// token cause at most 20 log lines each minute and one line that counts the rest. Otherwise a flood would remove the
// log of a deployment from memory.
//
// # The backlog of the kernel
//
// These limits do not hold for connections that the kernel has accepted and the agent has not. Go asks for as many as
// net.core.somaxconn, 4096, and with virtio each can keep a block of 32 KiB of receive buffers in use. The limit
// tcp_mem does not help, because it counts packets and not blocks. A machine with 256 MiB ran out of memory, and the
// kernel panicked. The backlog of the API is therefore 512, the usual size of web servers. When it is full, the kernel
// drops the first packet of a connection, and the kernel of the conductor sends it again after one, three and seven
// seconds. Commands take less time in such a flood than with the long backlog, in which each request waits for
// thousands of strangers.
package admission
