// Package firmware finds the files that drivers request from /lib/firmware, in Debian packages and in a directory of
// the operator.
//
// # Which files an image contains
//
// An image contains the files that its modules request, by the names that they declare or compute (computed.txt). A
// reviewed list, omitted.txt, names the omitted files with reasons. Drivers with too much firmware for an image are in
// separate groups, such as netronome with 141 MiB.
package firmware
