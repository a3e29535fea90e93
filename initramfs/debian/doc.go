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
//
// # Packages come from a lock file
//
// An image with "the newest kernel that apt knows" depends on the release and the date of the machine that builds it.
// So apt is not used. packages.lock pins version, SHA-256 and path of every package that an image or an ISO contains,
// and a build downloads these files: it needs no index and no key, because the SHA-256 is checked. "make lock" reads
// the signed indexes of the suite and of its security updates, and replaces the file.
//
// Debian removes superseded versions from its mirrors, security updates within weeks. If a build failed then, it would
// fail for everyone who does not update the repository daily. So it uses the newest version instead, of all parts of a
// kernel together, with a message; --locked makes this an error. Debian's snapshot archive keeps all versions: --mirror
// https://snapshot.debian.org/archive/debian/20260901T000000Z. The Go tool chain is pinned by go.mod.
package debian
