package conformance

import "slices"

// raidError is the path of the type of the error of a step.
const raidError = "/agent/0/body/command_error/type"

// raidDeviations returns the deviations of the groups of software RAID.
func raidDeviations() []Deviation {
	return slices.Concat(superblockDeviations("raid", "*"), superblockDeviations("raiddelete", "delete/*", "keep/*"),
		superblockDeviations("raidapply", "apply/*"), raidCreateDeviations(), raidRefusedDeviations(),
		raidDeleteDeviations(), raidApplyDeviations())
}

// superblockDeviations returns the deviations of new arrays in scenarios of a group.
func superblockDeviations(group string, scenarios ...string) []Deviation {
	const (
		host   = "Arrays belong to any host, so that mdadm assembles them by their names."
		bitmap = "Arrays with redundancy have a bitmap, so that a member that was removed for a while can return."
	)
	all := withGot(`"any"`, at("N2", group, host, scenarios, "/disks/*/arrays/*/Host", "/disks/*/parts/*/Host"))
	for i := range all {
		all[i].Want = `"vm"`
	}
	bitmaps := added("N2", group, bitmap, scenarios, "/disks/*/arrays/*/Internal Bitmap")
	return append(all, withGot(`"8 sectors from superblock"`, bitmaps)...)
}

// diskPaths returns the paths of all that a scenario compares of disks.
func diskPaths() []string {
	return withPrefix("/disks/*/", "arrays", "parts", "content", "table", "whole")
}

// The reasons of deviations in several groups of software RAID.
const (
	otherTypes = "A size that is not an integer, and a boolean that is text, are rejected. There the size is " +
		"rounded down, and the text is true."
	validatedFirst = "The configuration is validated before the first write, so that an invalid one changes no disk."
	unequalMembers = "The layout of level 0 is stated if members differ in size; the mdadm there always states it."
	otherDisks     = "Arrays on other disks do not prevent new ones. There a new one gets the name of one that is kept."
	zeroedTables   = "Partition tables are zeroed; wipefs erases their signatures only."
)

func raidCreateDeviations() []Deviation {
	const group = "raid"
	return slices.Concat(
		absent("N2", group, unequalMembers, []string{
			"level 1 and 0", "nvme", "is_root_volume", "bios*", "mode of *", "secure boot",
		}, "/disks/*/arrays/2/Layout"),
		absent("N2", group, unequalMembers, []string{"separate disks"}, "/disks/*/arrays/1/Layout"),
		fails("N2", group, otherTypes, 500, "SoftwareRAIDError", "size fraction"),
		absent("N2", group, otherTypes, []string{"size fraction"}, diskPaths()...),
	)
}

func raidRefusedDeviations() []Deviation {
	const (
		group     = "raidrefused"
		malformed = "A malformed configuration is a problem of software RAID; there it is a Python exception."
		disks     = "Level 5 needs three disks. There mdadm creates it with two."
		names     = "Names consist of the characters with which mdadm makes a file of each array."
	)
	rejected := withPrefix("after writes/", "no size", "size null", "size max", "*hint")
	return slices.Concat(
		invalidArguments("N1", group, "Arguments that the step does not have are invalid parameters.",
			[]string{"arguments/*"}),
		withGot(`"SoftwareRAIDError"`, at("N1", group, malformed, append(withPrefix("invalid/",
			"configuration of a list", "configuration of text", "entries null", "entries of text", "entry of text",
			"no level", "other keys only", "second without a *"), rejected...), raidError)),
		fails("N1", group, disks, 500, "SoftwareRAIDError", "after writes/level 5 of two"),
		fails("N1", group, names, 500, "SoftwareRAIDError", "after writes/name with a *",
			"after writes/name as a number"),
		fails("N1", group, "A negative size, and a boolean that is text, are rejected.", 500, "SoftwareRAIDError",
			"after writes/negative size", "after writes/is_root_volume as text"),
		absent("N1", group, validatedFirst, []string{"after writes/*"}, diskPaths()...),
	)
}

func raidDeleteDeviations() []Deviation {
	const (
		group  = "raiddelete"
		beside = "keep/create beside an unknown one"
	)
	another := []string{"keep/create another one", "keep/apply again"}
	return slices.Concat(
		invalidArguments("N3", group, "Arguments that the step does not have are invalid parameters.",
			[]string{"delete/arguments"}),
		absent("N3", group, zeroedTables, []string{
			"delete/one", "delete/two", "delete/separate", "delete/level 6", "delete/service", "delete/msdos",
			"keep/delete another one", "keep/delete by another name",
		}, "/disks/*/content"),
		absent("N2", group, unequalMembers, []string{
			"keep/delete its neighbour", "keep/delete all but both", "keep/create both again",
		}, "/disks/*/arrays/2/Layout"),
		absent("N2", group, unequalMembers, append(another, beside), "/disks/D[34]/arrays/1/Layout"),
		succeeds("N2", group, otherDisks, another),
		writtenAs(beside, "N2", group, otherDisks, another, "D3", "D4"),
	)
}

func raidApplyDeviations() []Deviation {
	const (
		group   = "raidapply"
		offered = "Steps of another kind are not found. There each method of a hardware manager is a step."
	)
	rejectedFirst := []string{"apply/too large", "apply/empty", "apply/null"}
	wrongStep := []string{"apply/as a clean step", "apply/create as a deploy step"}
	text, another := []string{"apply/delete_existing text"}, []string{"apply/create other disks"}
	return slices.Concat(
		writtenAs("apply/no software", "N1", group, validatedFirst, rejectedFirst),
		withGot(`"SoftwareRAIDError"`, at("N1", group, validatedFirst, rejectedFirst[1:], raidError)),
		fails("N2", group, offered, 500, "HardwareManagerMethodNotFound", wrongStep...),
		absent("N2", group, offered, wrongStep, diskPaths()...),
		succeeds("N2", group, otherDisks, another),
		writtenAs("apply/other disks", "N2", group, otherDisks, another, "D3", "D4"),
		absent("N2", group, unequalMembers, []string{"apply/replaces", "apply/delete_existing"},
			"/disks/*/arrays/2/Layout"),
		fails("N2", group, otherTypes, 400, "InvalidCommandParamsError", text...),
		writtenAs("apply/no software", "N2", group, otherTypes, text),
		invalidArguments("N2", group, "A number as a boolean is rejected.", []string{"apply/delete_existing 0"}),
		absent("N3", group, zeroedTables, []string{"apply/other disks"}, "/disks/*/content"),
	)
}
