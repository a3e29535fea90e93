// Package debian fetches packages from a Debian archive and unpacks them without installing them. It needs neither apt
// nor dpkg, so that the result does not depend on the release of the machine that runs it.
//
// A package is fetched in the version that the lock file pins, by its path in the archive and its SHA-256. If there is
// no such version, the newest one is chosen from the indexes of the suite and of its security updates. The indexes are
// verified as by apt: the signature of InRelease by a key of the keyring, the SHA-256 of Packages.xz in InRelease, and
// the SHA-256 of the package in Packages. See https://wiki.debian.org/DebianRepository/Format.
//
// The package format read is deb(5), version 2.0: an ar archive of debian-binary, control.tar and data.tar, where both
// tar files are plain or compressed with gzip, xz or zstd. Maintainer scripts are never run.
package debian
