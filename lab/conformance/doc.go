// Package conformance compares the agent of this ramdisk with ironic-python-agent (IPA), the reference.
//
// A scenario is a row of a table: how the agent starts, what Ironic replies, the disks before, and the requests to the
// agent. Its observation contains the replies of the agent, its requests to Ironic, and the disks afterwards. A group
// contains the scenarios that share a machine. The behaviour of IPA was recorded: testdata/ipa/GROUP.json has the
// observations of a real IPA in a machine of the same shape, with the same kernel, and the versions of IPA and its
// tools. The tests run the same scenarios with this ramdisk and compare; those that set long run only with the build
// tag long. `make record-ipa ONLY=GROUP` records the scenarios that are new or have changed. To record all of a group,
// delete its file first. If something has to be recorded and a package has another version, all of the group is.
//
// Most tests of the suite itself are in files *_own_test.go.
//
// Differences are fixed, or listed in deviations_*.go with their reason. The tests fail on a difference that is not
// listed, and on one that is listed and does not occur.
//
// Values that differ between two runs of the same agent are replaced before they are recorded, and those that no client
// can depend on before they are compared. recordedExchange, normaliseExchange, normaliseRequests and normaliseDisk call
// one function for each kind. Recordings contain the texts of errors, which are not compared, so that a reader can see
// why IPA failed. The recordings of bootentries, files, metadata, options and steps, and most of hints, are older and
// contain a placeholder instead.
package conformance
