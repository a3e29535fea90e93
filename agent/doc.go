// Package agent is the deploy agent: it finds its node in Ironic, serves the REST API through which Ironic works on the
// machine, and sends heartbeats. It speaks the protocol of ironic-python-agent. Run executes it from start to end.
//
// # The first lookup does not wait for drivers
//
// Ironic finds a node by any of its MAC addresses, and the card with an address is usually one that it knows. So the
// agent asks once as soon as the network is up, while drivers of storage adapters may need many more seconds. If Ironic
// does not know the node by these cards, the agent asks again when the drivers are loaded, or after 10 s. Waiting for
// the drivers of network cards alone would not be enough: some cards are behind a bus whose driver has to be loaded
// first, so nothing shows that all of them are known. The first request is never cancelled, because the token in its
// answer is sent only once. Steps and the inventory wait for the drivers, so that an early heartbeat cannot make one
// miss a disk.
package agent
