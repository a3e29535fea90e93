// Package password hashes passwords and checks them against hashes in the formats of crypt(5): SHA-256 ($5$), SHA-512
// ($6$), yescrypt ($y$) and bcrypt ($2a$, $2b$, $2y$).
//
// A hash is foreign text: its parameters decide how much time and memory a check takes. Parse rejects hashes that take
// more than the limits of this package. No error contains a part of a hash.
//
// # Limits precede the library
//
// The formats are computed by go-crypt, which does not bound the cost of a hash. So the parameters are parsed here
// first: rounds=999999999 would take minutes, and the largest parameters of yescrypt more memory than the machine has.
package password
