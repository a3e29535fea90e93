// Package account describes who may log in to the ramdisk: users with a hash of their password, or with public keys.
//
// The text of keys and hashes is untrusted: all parsers are bounded, and no error contains a part of it, only line
// numbers and names of formats.
//
// # Keys with options
//
// A key with options, such as command= or from=, is an error and not accepted without them, because they restrict it.
package account
