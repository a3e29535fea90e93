// Package dhcp6 is a DHCPv6 client (RFC 8415) for addresses, or only for name servers and time servers.
//
// The client identifies itself by its MAC address alone (DUID-LL). Of several servers it uses the first one with a
// usable answer. It does not request prefixes.
//
// # Decoding
//
// Messages are encoded and decoded by insomniacslk/dhcp, whose client is not used (see package dhcp4). Only the options
// that this client uses are decoded, because a malformed option that is not used must not invalidate the lease. Answers
// are limited to 8 KiB, because the library copies the rest of a message at each level of nested options. The codec
// adds 176 KiB to the unpacked ramdisk and 44 KiB to the initramfs.
package dhcp6
