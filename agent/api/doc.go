// Package api is the HTTP server of the agent: the routes, documents, errors and token rules of ironic-python-agent's
// REST API version 1, over a listener with TLS.
//
// Intended differences: the token never appears in the request log and is compared in constant time, and the private
// key of the generated certificate is only kept in memory.
//
// # The certificate is never renewed, and its key is never a file
//
// Ironic stores the certificate of the first heartbeat and rejects heartbeats with another one until the machine has
// restarted. So the agent generates key and certificate once and keeps them when it starts over after a failure. The
// certificate is valid for 30 days, as in ironic-python-agent. With fast track a node can run for longer; Ironic then
// cannot connect any more, and the node needs a restart. The option auto_tls_lifetime sets another time.
// ironic-python-agent writes agent.key below /run, but only the agent itself reads it, so here the key stays in memory.
//
// # An old Ironic reads records without the token
//
// Ironic before 29.0 (API version 1.96) sends the token with commands, but not when it reads their records. Updates of
// 23.0, 24.1 and 26.1 send it, too. ironic-python-agent 10.2 answers any host until a request to read has contained the
// token, and newer versions answer none without it: with Ironic 21.4 each cleaning fails. Records contain parameters of
// commands, such as a config drive. A request without the token is therefore answered only if
//
//   - the API version of Ironic is older than 1.96,
//   - no request to read has contained the token yet, and
//   - its address has sent the token with a command, or there are no records. After a restart of the machine in the
//     middle of a cleaning, Ironic reads before it sends a command.
//
// If another conductor takes over the node while a step runs, and comes from another address, its first request is
// refused and the step fails.
package api
