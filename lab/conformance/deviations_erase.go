package conformance

import "slices"

const (
	endsErased    = "Both ends of disks and partitions are overwritten, 8 MiB each."
	membersErased = "Members are erased unless the node names the array. There they are left out."
)

// erased returns deviations of disks that contain less than with ironic-python-agent. They do not hide anything that
// this ramdisk leaves on a disk.
func erased(row, group, reason string, scenarios []string, paths ...string) []Deviation {
	return withGot("null", at(row, group, reason, scenarios, paths...))
}

// withGot returns deviations that only permit one value of this ramdisk.
func withGot(value string, all []Deviation) []Deviation {
	for i := range all {
		all[i].Got = value
	}
	return all
}

// eraseDeviations returns the deviations of the group erase.
func eraseDeviations() []Deviation {
	const (
		group  = "erase"
		body   = "/agent/0/body/"
		result = body + "command_result/clean_result"
	)
	return slices.Concat(
		at("P3", group, "The result contains evidence of each disk, also of those that are skipped.", []string{"all/*"},
			result+"//dev/*"),
		at("P5", group, "The result contains evidence of each disk.", []string{"express/*"}, result),
		at("P3", group, "No pass at all is an error. There it is a success, and the disk keeps its data.",
			[]string{"all/no passes"}, body+"command_error", body+"command_result", body+"command_status"),
		withGot(`"CleaningError"`, at("P3", group,
			"A number of passes that is no number is an error of the step. There it is an exception of Python.",
			[]string{"all/iterations of no number"}, body+"command_error/type")),
		at("P3", group, "The text False is false. There it is true.", []string{"all/zeroize text"},
			"/disks/A8/content"),
		erased("P5", group, endsErased, []string{"express/*"}, "/disks/*/content/*"),
		erased("P6", group, membersErased, []string{"all/superblock of an array"},
			"/disks/*/arrays", "/disks/*/content", "/disks/*/whole"),
	)
}

// metadataDeviations returns the deviations of the group metadata.
func metadataDeviations() []Deviation {
	const (
		group = "metadata"
		body  = "/agent/0/body/"
	)
	logical := []string{"metadata/mbr with logical partitions"}
	return slices.Concat(
		at("P4", group, "The result contains evidence of each disk.", []string{"metadata/*"},
			body+"command_result/clean_result"),
		at("P4", group, "Logical partitions are erased, too. There their nodes are gone with the extended partition, "+
			"which is an error.", logical, body+"command_error", body+"command_result", body+"command_status"),
		erased("P4", group, endsErased, []string{"metadata/*"}, "/disks/*/content", "/disks/*/content/*"),
		erased("P4", group, endsErased, []string{"metadata/zfs"}, "/disks/*/whole"),
		erased("P6", group, membersErased, []string{"metadata/*superblock*"}, "/disks/*/arrays", "/disks/*/whole"),
		erased("P6", group, membersErased, []string{"metadata/gpt with a superblock"},
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
	var all []Deviation
	add := func(row, reason string, scenarios []string, paths ...string) {
		all = append(all, at(row, group, reason, scenarios, paths...)...)
	}
	add("P3", evidence, []string{
		"several/in parallel", "read-only/all permitted", "skip/*erase_devices", "skip/by name pattern",
	}, result+"//dev/*")
	add("P4", evidence, []string{
		"several/metadata", "read-only/metadata", "read-only/metadata permitted", "shared/permitted",
		"skip/*erase_devices_metadata", "skip/several keys", "skip/by or", "skip/by in", "skip/in small letters",
		"skip/negated", "skip/by name",
	}, result)
	add("P5", evidence, []string{"read-only/express", "skip/*erase_devices_express"}, result)
	const shared = "Shared file systems are protected from erase_devices, too. There it erases them."
	protected := []string{"shared/all"}
	return slices.Concat(all,
		succeeds("P3", group, "A concurrency below 1 is 1. There it is an exception of Python.",
			[]string{"several/concurrency 0"}),
		erased("P4", group, endsErased, []string{"shared/permitted"}, "/disks/*/content/*"),
		withGot(`{"code":500,"details":"\u003ctext \u003e","message":"\u003ctext \u003e",`+
			`"type":"ProtectedDeviceError"}`, at("P7", group, shared, protected, body+"command_error")),
		erased("P7", group, shared, protected, body+"command_result"),
		withGot(`"FAILED"`, at("P7", group, shared, protected, body+"command_status")),
		writtenAs("shared/metadata", "P7", group, shared, protected),
	)
}
