package conformance

import "slices"

// partitionDeviations returns the deviations of partition images of the group images.
func partitionDeviations() []Deviation {
	const (
		group = "images"
		kind  = "/agent/0/body/command_error/type"
		uuids = "/agent/1/body/command_result/"
	)
	incomplete := withPrefix("partition/", "root_mb missing", "swap_mb missing", "ephemeral_mb missing",
		"ephemeral_format missing", "preserve_ephemeral missing",
		`root_mb "large"`)
	null := withPrefix("partition/", "root_mb null")
	few := withPrefix("partition/", "root_mb 0", "root_mb -1")
	half := withPrefix("partition/", "root_mb 64.5")
	numbers := slices.Concat(incomplete, null, few, half)
	texts := withPrefix("partition/", `root_mb "64"`, "swap_mb text")
	format := withPrefix("partition/", "ephemeral without a format", "ephemeral of an unknown format")
	large := withPrefix("partition/", "larger than root_mb", "larger than the disk")
	kept := withPrefix("partition/", "ephemeral kept without one")
	wrongType := withPrefix("partition/", "another image_type", "image_type in capitals")
	const noTableReason = "A file system without a partition table is an error; parted there lists it as a partition."
	const decided = "The layout is validated before the first write, so that an invalid one does not change the disk."
	laidOut := withPrefix("partition/", "root only", "swap", "swap, *", "swap_mb null", "ephemeral",
		"ephemeral of vfat",
		"config drive", "bios*", "uefi, msdos", "secure boot", "no mode", "* from a file", "sectors of 4096 bytes",
		"no file system")
	return slices.Concat(
		plantedErased("L1", group, "Both ends of the disk are erased, which can contain metadata of a former tenant.",
			append(laidOut, texts...), "/disks/*/content/[0-9]", "/disks/*/content/5119"),
		at("L3", group, "A new ext4 file system has its tables at other places than mke2fs has them.",
			withPrefix("partition/", "ephemeral", "swap, ephemeral and config drive"), "/disks/ROOT/content/567"),
		invalid("L1", group, "Sizes and flags of a layout are checked as parameters.", numbers),
		unchanged("ROOT", "L1", group, decided, slices.Concat(few, half, large, format), "/disks/ROOT/content/[0-9]",
			"/disks/ROOT/content/5119"),
		absent("L1", group, decided, append(half, large[0]), "/disks/ROOT/content/551"),
		stillPlanted("L3", group, "The layout of a disk whose ephemeral partition is kept is checked first.", kept,
			"/disks/ROOT/content/[12]"),
		succeeds("L1", group, "Sizes can be texts of digits.", texts),
		writtenAs("partition/root only", "L1", group, "Sizes can be texts of digits.", texts[:1]),
		writtenAs("partition/swap", "L1", group, "Sizes can be texts of digits.", texts[1:]),
		at("L1", group, "Sizes can be texts of digits.", texts[1:], uuids+"partitions/*"),
		invalidArguments("L4", group, decided, large[:1]),
		withGot(`"DeploymentError"`, at("L4", group, decided, large[1:], kind)),
		at("L3", group, "An ephemeral partition without a format, or with an unknown one, is refused before the "+
			"first write; there the server fails.", format, "/agent/0/status", "/agent/0/body/faultcode"),
		runs("L3", group, "An unknown format of an ephemeral partition is an error of the command.",
			"FileSystemNotSupported", format[1:]...),
		withGot(`"DeploymentError"`, at("L3", group,
			"The layout of a disk whose ephemeral partition is kept is checked first.", kept, kind)),
		withGot(`"6a6e7a52-5d0e-4b1c-9d0c-1c6d0c2b7e11"`, at("E5", group, "A failed command leaves no new UUIDs.",
			slices.Concat(incomplete, few, texts[:1], large), uuids+"root uuid")),
		withGot("null", at("E5", group, "A failed command leaves no new UUIDs.",
			slices.Concat(format[:1], kept, wrongType), uuids+"*")),
		fails("K14", group, noTableReason, 500, "DeploymentError", wrongType...),
		absent("K14", group, noTableReason, wrongType, "/disks/ROOT/ranges"),
		stillPlanted("K14", group, noTable, wrongType, "/disks/ROOT/content/[01]"),
		absent("K14", group, noTable, wrongType, "/disks/ROOT/whole"),
	)
}
