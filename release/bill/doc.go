// Package bill describes artefacts: their bills of materials as SPDX documents, with Debian packages and Go modules,
// and the provenance of their builds.
//
// # Contents are known, not guessed
//
// Generators such as syft guess the contents of an archive. The builder knows which package each file was unpacked
// from, and Go which modules a program has.
package bill
