// Package token stores the agent token that Ironic and the agent share, by the rules of ironic-python-agent. The
// token is only kept in memory. A restarted process cannot obtain it again.
//
// # Which token replaces another
//
// A lookup is not authenticated: Ironic answers anyone who knows a MAC address, and without verified TLS anyone can
// send the answer. The changes that an answer can make are therefore limited.
//
//   - No token is known: the answer may set one of 32 characters or more.
//   - The token is from an earlier lookup: it may be replaced. Ironic made it forget, for example when the node was
//     enrolled again.
//   - The token is from virtual media under a signed image (see package config): it may be replaced by any of 32
//     characters or more.
//   - The token is from ipa-agent-token or agent_token: it may be replaced by a valid token for this node, which has 32
//     to 255 characters of URL-safe base64 and comes in an answer whose node is the one that the inspection or an
//     earlier lookup named, if any did.
//   - The answer is the mask "******" and a token is known: the known token is kept.
//   - The answer is the mask and no token is known: the agent is locked, because another agent has the token.
//
// An answer may also replace the node as a whole, and set the options of its object "config": image formats, MD5, deep
// inspection, TLS version and ciphers, containers, metrics. enable_bios_bootloader_install can only be switched on. A
// later lookup that refreshes the root device hints replaces only the node.
//
// ironic-python-agent replaces a given token by any text of 32 characters. To reject every new token is not an
// alternative: Ironic forgets a token when the machine is switched off, creates another one at the next lookup, and
// rejects heartbeats with the old one.
package token
