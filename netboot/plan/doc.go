//go:build linux

// Package plan assigns a role to each link by the static data of a network.
//
// # Static data does not switch DHCP off
//
// Links that the data does not name still use DHCP, as with glean, and so does a link that is named without a network:
// data that was written for a replaced card must not disconnect the node. Static data has precedence by smaller metrics
// and an earlier place in the resolver's file. A link with static addresses does not use DHCP. Static addresses wait
// for the carrier without a limit. Their routes are inactive without a carrier, because they would hide the routes of a
// working link.
//
// An invalid part of the data is ignored and logged by name, and the rest is used. Links that depend on it use DHCP,
// for example the members of a bond that cannot be created. If the kernel command line announces a config drive
// (ir_pub_id, boot_method=vmedia), links are set up but not configured until the drivers are loaded and the media were
// read. Otherwise a lease would be acquired and discarded a second later. A drive that a slow BMC presents after that
// is used when it appears.
package plan
