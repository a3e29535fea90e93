// Package release signs the files of builds and verifies them. The files are called artefacts: a kernel, an initramfs,
// a tarball, an ISO, or an OCI image layout, which is a directory.
//
// Next to an artefact NAME are NAME.spdx.json, its bill of materials, NAME.provenance.json, how it was built, and
// NAME.sha256, its checksum. A unified kernel image also has NAME.pcr.json, predicted PCR values. Each of them but the
// checksum has a signature, whose name ends in .minisig. The signature of a layout is in it: index.json.minisig.
//
// # Which build a file belongs to
//
// Files without a signature are an error in a directory. A name in a signature does not say to which build a file
// belongs. The provenance does: it has the SHA-256 of the artefact, of its bill of materials, and of predicted PCR
// values. Otherwise an older prediction with the same name would be accepted, and PCR values of an older image be
// enrolled. Names that end like companions but that nothing covers, such as a.kernel.spdx.json.sha256, are errors:
// somebody could take them for verified.
package release
