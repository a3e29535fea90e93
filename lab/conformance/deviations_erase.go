package conformance

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
)

const (
	endsErased    = "Both ends of disks and partitions are overwritten, 8 MiB each."
	membersErased = "Members are erased unless the node names the array. There they are left out."
)

// eraseDeviations returns the deviations of the group erase.
func eraseDeviations() []Deviation {
	const (
		group  = "erase"
		body   = "/agent/0/body/"
		result = body + "command_result/clean_result"
	)
	return slices.Concat(
		added("P3", group, "The result contains evidence of each disk, also of those that are skipped.",
			[]string{"all/*"}, result+"//dev/*"),
		added("P5", group, "The result contains evidence of each disk.", []string{"express/*"}, result),
		fails("P3", group, "No pass at all is an error. There it is a success, and the disk keeps its data.", 500,
			"BlockDeviceEraseError", "all/no passes"),
		withGot(`"CleaningError"`, at("P3", group,
			"A number of passes that is no number is an error of the step. There it is an exception of Python.",
			[]string{"all/iterations of no number"}, body+"command_error/type")),
		withGot(everywhere("data", 32), at("P3", group, "The text False is false. There it is true.",
			[]string{"all/zeroize text"}, "/disks/A8/content")),
		passes("P3", group, "The text False is false. There it is true.", "all/zeroize text", "A8", 2, 1),
		absent("P5", group, endsErased, []string{"express/*"}, "/disks/*/content/*"),
		absent("P6", group, membersErased, []string{"all/superblock of an array"},
			"/disks/*/arrays", "/disks/*/content", "/disks/*/whole"),
		passes("P6", group, membersErased, "all/superblock of an array", "A21", 0, 2),
	)
}

// passes returns a deviation of how often the agents write the size of a disk.
func passes(row, group, reason, scenario, serial string, want, got int) []Deviation {
	return []Deviation{{
		Row: row, Group: group, Reason: reason, Scenarios: []string{scenario}, Path: "/passes/" + serial,
		Want: strconv.Itoa(want), Got: strconv.Itoa(got),
	}}
}

// everywhere returns the content of a disk whose first chunks have the same kind of content, and the others none.
func everywhere(kind string, chunks int) string {
	list := make([]string, chunks)
	for i := range list {
		list[i] = fmt.Sprintf("%q:%q", strconv.Itoa(i), kind)
	}
	slices.Sort(list)
	return "{" + strings.Join(list, ",") + "}"
}

// metadataDeviations returns the deviations of the group metadata.
func metadataDeviations() []Deviation {
	const (
		group = "metadata"
		body  = "/agent/0/body/"
	)
	logical := []string{"metadata/mbr with logical partitions"}
	return slices.Concat(
		added("P4", group, "The result contains evidence of each disk.", []string{"metadata/*"},
			body+"command_result/clean_result"),
		at("P4", group, "Logical partitions are erased, too. There their nodes are gone with the extended partition, "+
			"which is an error.", logical, resultPaths()...),
		absent("P4", group, endsErased, []string{"metadata/*"}, "/disks/*/content", "/disks/*/content/*"),
		absent("P4", group, endsErased, []string{"metadata/zfs"}, "/disks/*/whole"),
		absent("P6", group, membersErased, []string{"metadata/*superblock*"}, "/disks/*/arrays", "/disks/*/whole"),
		absent("P6", group, membersErased, []string{"metadata/gpt with a superblock"},
			"/disks/*/parts", "/disks/*/table"),
	)
}

// skipDeviations returns the deviations of the group skip.
func skipDeviations() []Deviation {
	const (
		group    = "skip"
		evidence = "The result contains evidence of each disk, also of those that are skipped."
		body     = "/agent/0/body/"
		result   = body + "command_result/clean_result"
	)
	const shared = "Shared file systems are protected from erase_devices, too. There it erases them."
	protected := []string{"shared/all"}
	return slices.Concat(
		added("P3", group, evidence, []string{
			"several/in parallel", "read-only/all permitted", "skip/*erase_devices", "skip/by name pattern",
		}, result+"//dev/*"),
		added("P4", group, evidence, []string{
			"several/metadata", "read-only/metadata", "read-only/metadata permitted", "shared/permitted",
			"skip/*erase_devices_metadata", "skip/several keys", "skip/by or", "skip/by in", "skip/in small letters",
			"skip/negated", "skip/by name",
		}, result),
		added("P5", group, evidence, []string{"read-only/express", "skip/*erase_devices_express"}, result),
		succeeds("P3", group, "A concurrency below 1 is 1. There it is an exception of Python.",
			[]string{"several/concurrency 0"}),
		absent("P3", group, "A concurrency below 1 is 1. There it is an exception of Python.",
			[]string{"several/concurrency 0"}, "/disks/B5/content"),
		passes("P3", group, "A concurrency below 1 is 1. There it is an exception of Python.", "several/concurrency 0",
			"B5", 0, 2),
		absent("P4", group, endsErased, []string{"several/metadata"}, "/disks/B3/content/*", "/disks/B4/content/*"),
		absent("P4", group, endsErased, []string{"shared/permitted"}, "/disks/*/content/*"),
		fails("P7", group, shared, 500, "ProtectedDeviceError", protected...),
		passes("P7", group, shared, protected[0], "VMFS", 2, 0),
		writtenAs("shared/metadata", "P7", group, shared, protected),
	)
}
