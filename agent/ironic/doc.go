// Package ironic is the agent's client of the Ironic API: version discovery, lookup, heartbeat, the inspection
// callback, and the choice of the callback address.
//
// It follows the protocol of ironic-python-agent from API version 1.31 on (/v1/lookup and /v1/heartbeat). If the option
// driver_name is set, it also speaks with an Ironic before API version 1.22, by the vendor_passthru of the node's
// driver. If configured, it finds Ironic by multicast DNS (RFC 6762 and 6763), as a one-shot querier without a cache.
// The size of Ironic's responses is limited.
//
// # A refused token is followed by a lookup
//
// When a deployment is aborted, Ironic (39.0) forgets the token and the URL of the ramdisk, which keeps running. If the
// node is deployed again within [deploy] fast_track_timeout of its inspection, fast track does not restart it, but
// waits for its next heartbeat. ironic-python-agent sends the old token until the deployment times out. This agent
// looks the node up once after each heartbeat that Ironic refuses for its token, by the UUID that it knows. A response
// about another node is ignored, and otherwise the rules of package token apply. A running command continues as long as
// the lookup fails: after an abort Ironic answers no lookup before the next operation.
//
// Another token starts another session. The agent cancels the running command, waits until it has ended, and empties
// the list of commands before the next heartbeat. Otherwise the aborted deployment would write to the disk of the new
// one, and Ironic would wait until its timeout: it takes a list with an earlier step for a deployment in progress,
// whose step it waits for.
//
// # Versions
//
// A lookup below API version 1.62 creates no agent token, and from that version on Ironic rejects heartbeats without
// one. So a temporary failure must not lead to an assumed version: if the request for the version gets no answer, there
// is no lookup either, and both are retried. If the answer lacks the version (a proxy that shows only /v1), 1.31 is
// assumed as in ironic-python-agent. The answer to the lookup has a header with the newest version of Ironic, which
// decides whether the lookup is repeated.
//
// ironic-python-agent of Newton asked for /v1/lookup, and after status 404, 401 or 406 it used vendor_passthru until it
// was restarted. A newer Ironic answers 404 to a lookup of a node that it does not know, so a late registration, or a
// proxy in front of an Ironic that is being started, would have switched the protocol for good. Here the version
// decides: vendor_passthru is used if the root document, or the header of the answer, names a version below 1.22, or if
// Ironic names no version at all and answers with one of these statuses. Each lookup decides again. A conductor that is
// asked in this way knows no token, so its commands need none. This requires the kernel parameter ipa-driver-name,
// which conductors since 7.0 do not pass, and a successful lookup of this kind. Nobody gains by pretending to be such
// an Ironic: whoever can answer the lookup can also choose the token. The lookup contains only the MAC addresses of the
// inventory, because these conductors read nothing else.
//
// # Progress travels with heartbeats
//
// Ironic has no API for the progress of a step. Since API version 1.72 its heartbeats have two fields for the installer
// of its anaconda deploy interface: agent_status and agent_status_message. The conductor stores the message of any
// ramdisk in driver_internal_info, where every client of Ironic can read it. agent_status is never sent: Ironic acts on
// its values start, end and error, and accepts a heartbeat with it without the version of the agent. A notification, a
// method of vendor passthru or a service next to Ironic would need another Ironic or more configuration.
//
// A heartbeat is expensive: the conductor takes the exclusive lock of the node, writes its row, and asks the agent for
// the state of its commands. So heartbeats for progress are rare by default, are sent only if the line has changed, and
// become rarer when Ironic is busy. One that fails is not repeated after 5 to 10 s like others, and the screen does not
// show it as a lost connection: the next heartbeat that Ironic requires decides that. If Ironic or a proxy rejects
// heartbeats with the message and accepts them without it, none is sent any more: a node without heartbeats is lost, a
// node without progress is not.
//
// # Multicast DNS without a library
//
// hashicorp/mdns would make the program of the ramdisk 536 KiB larger, 140 KiB of them compressed, because it includes
// all of miekg/dns. Here mdnswire.go uses the message parser of golang.org/x/net. As of version 1.0.7, the library
//
//   - accepts any response as an answer, whichever service and query it belongs to, and also unsolicited ones. Here a
//     response must have the random identifier of its query and the name of the service.
//   - keeps one IPv4 and one IPv6 address of a host, the last ones. The host of Ironic can have several.
//   - sends one query, on one interface or on the default route's. A booting machine has interfaces that come up during
//     the query, and loses packets.
//   - queries the instances of a service. Ironic publishes a known instance, whose records can be queried.
//   - starts its own goroutines. A panic in one of them would end PID 1.
package ironic
