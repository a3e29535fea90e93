package conformance

import "slices"

// raidDeviations returns the deviations of the group raid.
func raidDeviations() []Deviation {
	const (
		group  = "raid"
		kind   = "/agent/0/body/command_error/type"
		host   = "Arrays belong to any host, so that mdadm assembles them by their names."
		bitmap = "Arrays with redundancy have a bitmap, so that a member that was removed for a while can return."
		layout = "The layout of level 0 is stated if members differ in size; the mdadm there always states it."
	)
	// mirrors are the scenarios that create an array of level 1, striped those with a second array of level 0 on the
	// same disks.
	mirrors := []string{
		"delete/then create", "level 1 MAX", "level 1", "level 1 and ?", "level 1 and 1+0", "separate disks",
		"disks in common", "nvme", "scsi and nvme", "volume_name", "volume_name of 30", "size text", "more keys",
		"is_root_volume", "hints with operators", "apply/replaces", "apply/delete_existing*", "apply/the same",
		"apply/service*", "apply/invalid", "apply/no *", "apply/create twice", "apply/create other disks",
		"apply/too large", "apply/empty", "apply/null",
	}
	withHost := slices.DeleteFunc(slices.Clone(mirrors), func(name string) bool { return name == "volume_name of 30" })
	double := []string{"level 1 and 1+0", "level 1 and [56]"}
	striped := []string{
		"level 1 and 0", "nvme", "is_root_volume", "apply/replaces", "apply/delete_existing",
	}
	values := []string{"size fraction", "apply/delete_existing text"}
	const (
		decided = "The configuration is validated before the first write, so that an invalid one deletes no arrays."
		others  = "Steps of another kind are not found. There each method of a hardware manager is a step."
		types   = "A size that is not an integer, and a boolean that is text, are rejected. There the size is " +
			"rounded down, and the text is true."
		apart = "Arrays on other disks do not prevent new ones."
	)
	kept := []string{"apply/too large", "apply/empty", "apply/null"}
	wrongStep := []string{"apply/as a clean step", "apply/create as a deploy step"}
	another := []string{"apply/create other disks"}
	disks := []string{
		"/disks/*/arrays", "/disks/*/parts", "/disks/*/content", "/disks/*/table", "/disks/*/whole",
	}
	return slices.Concat(
		writtenAs("apply/no software", "N1", group, decided, kept),
		withGot(`"SoftwareRAIDError"`, at("N1", group, decided, kept[1:], kind)),
		invalidArguments("N1", group, "Arguments that the step does not have are invalid parameters.",
			[]string{"refused/*"}),
		at("N2", group, others, wrongStep, resultPaths()...),
		absent("N2", group, others, wrongStep, disks...),
		at("N2", group, apart, another, append(resultPaths(), "/disks/D3/arrays", "/disks/D3/content/551",
			"/disks/D3/parts/?/*")...),
		withGot(`"SoftwareRAIDError"`, at("N1", group,
			"A malformed configuration is a problem of software RAID; there it is a Python exception.", []string{
				"invalid/configuration of a list", "invalid/configuration of text", "invalid/entries null",
				"invalid/entries of text", "invalid/entry of text", "invalid/no level", "invalid/other keys only",
				"invalid/second without a *",
			}, kind)),
		withGot(`"any"`, at("N2", group, host, withHost, "/disks/*/arrays/*/Host", "/disks/*/parts/*/Host")),
		withGot(`"8 sectors from superblock"`, slices.Concat(
			at("N2", group, bitmap, mirrors, "/disks/*/arrays/1/Internal Bitmap"),
			at("N2", group, bitmap, double, "/disks/*/arrays/2/Internal Bitmap"),
		)),
		absent("N2", group, layout, striped, "/disks/*/arrays/2/Layout"),
		absent("N2", group, layout, []string{"separate disks"}, "/disks/*/arrays/1/Layout"),
		at("N2", group, types, values, resultPaths()...),
		absent("N2", group, types, values[:1], disks...),
		writtenAs("apply/no software", "N2", group, types, values[1:]),
		invalidArguments("N2", group, "A number as a boolean is rejected.", []string{"apply/delete_existing 0"}),
		invalidArguments("N3", group, "Arguments that the step does not have are invalid parameters.",
			[]string{"delete/arguments"}),
		absent("N3", group, "Partition tables are zeroed; wipefs erases their signatures only.", []string{
			"delete/one", "delete/two", "delete/separate", "delete/level 6", "delete/service", "delete/msdos",
			"hints with operators", "apply/other disks", "apply/create other disks",
		}, "/disks/*/content"),
	)
}
