// Package owner gives a state to a goroutine of its own, which alone changes it and publishes copies.
//
// # One owner for each state
//
// The events of the kernel, the DHCP clients of both families, router advertisements and LLDP all change the state of a
// link, and the resolver's file depends on all links. A mutex for the whole state was correct, but did not show which
// fields it guards, and each reader held it. With an owner, other goroutines send a change and wait until it is
// published. Reading needs no lock, and a snapshot does not change.
//
// The owner of a link does not configure the kernel: a driver can take seconds for a new MTU, and meanwhile the
// goroutine that follows the events of the kernel, which sends changes to all links, would wait. Addresses and routes
// are changed by the goroutines of the link's role, one each for DHCPv4, DHCPv6 and the static data. Only that
// goroutine uses the list of what it configured, so the list needs no lock. Routes that connections of the agent add
// are a list with a lock, because any goroutine connects. A change takes another lock in one case only: the start of
// the wait for LLDP frames takes the lock of the LLDP listener, which is also held while the socket of a new link is
// opened.
//
// A change is a function and not a message with a type of its own: there are more than twenty kinds of changes, and
// most are one line. A change that panics has no effect, and the panic is returned to the goroutine that sent it, which
// is restarted.
package owner
