// Package signature creates and verifies detached signatures in the format of minisign
// (https://jedisct1.github.io/minisign/): Ed25519 over the BLAKE2b-512 hash of a file, with a trusted comment that
// names the file. The older format, which signs the file itself, is rejected.
//
// # Minisign was chosen
//
// A key of minisign is one line of text, its signatures can be verified without a network, and Debian has the tool.
// Sigstore needs an identity provider and a transparency log, which sites without internet access do not have. OpenPGP
// allows many algorithms and formats, and its libraries are larger. aead.dev/minisign hashes files while it reads them,
// and limits the memory that the parameters of an encrypted key ask for; jedisct1/go-minisign reads a file into memory
// to verify it, and has no tagged releases. Neither is part of the ramdisk.
//
// Two rules are stricter than minisign's. Signatures of the file itself (minisign -l) are rejected, because they are
// verified only after the whole file was read into memory. The trusted comment must name the file: otherwise an
// attacker could exchange two signed files, such as the kernels of two architectures.
package signature
