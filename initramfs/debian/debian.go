// Package debian fetches packages from the Debian archive this machine is set up for and unpacks them without
// installing them.
//
// The format read is deb(5), version 2.0: an ar archive of debian-binary, control.tar and data.tar, where both tar
// files are plain or compressed with gzip, xz or zstd. Maintainer scripts are never run. Downloads go through apt, so
// that the machine's own sources, proxies and keys hold, for other architectures too.
package debian
