// Package spdx writes software bills of materials in the JSON format of SPDX 2.3
// (https://spdx.github.io/spdx-spec/v2.3/).
//
// A document describes one artefact: the packages that it was made from, the files in it, and their licences. The same
// contents give the same bytes.
//
// # Written without a library
//
// A document of SPDX 2.3 is a few structures that encoding/json writes. spdx/tools-golang, the library of the SPDX
// project, brings RDF and YAML parsers, and its types of SPDX 2.3 order nothing, so that documents would not be
// reproducible. It reads the documents in tests instead, as a second implementation; github/go-spdx checks the
// expressions of licences. SPDX 3 is not used, because few scanners read it.
package spdx
