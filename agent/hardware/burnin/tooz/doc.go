// Package tooz pairs nodes through a coordination backend, in the layout that OpenStack's library tooz gives it, and by
// the procedure of ironic-python-agent. Nodes with either program are partners.
//
// The only backend is ZooKeeper, which ironic-python-agent's documentation names. TLS is not supported.
//
// # Settings
//
// Without agent_burnin_fio_network_config, burnin_network finds its partner in a group of the coordination service that
// agent_burnin_fio_network_pairing_backend_url names: zookeeper://[USER:PASSWORD@]HOST[:PORT][,HOST...], with the
// options hosts and timeout of tooz. The other settings are agent_burnin_fio_network_pairing_group_name
// (ironic.network-burnin) and agent_burnin_fio_network_pairing_timeout (900 s). The first of two nodes sends first.
// tooz has ten other drivers; each would be a protocol of its own, so that they are refused by name. TLS (use_ssl) is
// refused, too: a password is sent in clear text. A test pairs nodes with the library tooz itself. Nodes of both
// programs in one group are paired, but their tests of the network differ and fail: use a group for each.
//
// # Differences from ironic-python-agent
//
//   - The name of a node in the group is the address from which it is connected to ZooKeeper. ironic-python-agent uses
//     the host name, which is the same on all nodes if DHCP sets none, and which the partner must be able to resolve.
//   - Changes are received from ZooKeeper, not polled.
//   - The timeout limits the wait for the lock, too, and then the wait for a partner. ironic-python-agent waits forever
//     for a lock whose holder has stopped.
//   - Members that previous attempts have left, this node's own included, are waited for. ironic-python-agent takes one
//     of them for its partner, or fails.
//   - A partner that crashes and one that leaves look the same, so that both nodes can only notice it when they
//     connect: each waits for the pairing timeout, and fails.
//   - After a lost connection, the node connects again within its session and repeats the request that has no answer.
//     It recognizes a request that the server had carried out. The pairing timeout limits this, too. The error then
//     names the server and the time of the loss, because nobody knows whether another node has joined since.
//   - A lost session fails the step: everything that the node had created has disappeared with it.
package tooz
