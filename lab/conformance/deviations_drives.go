package conformance

import "slices"

// driveDeviations returns the deviations of the group drives.
func driveDeviations() []Deviation {
	const (
		group = "drives"
		first = "The config drive is fetched before the image is written, so that a broken one changes no disk."
		ends  = "The end of the disk is erased, which can contain metadata of a former tenant."
		start = "/disks/ROOT/content/[0-7]"
		drive = "/disks/ROOT/content/192"
	)
	broken := []string{
		"url not found", "url of base64 that is not gzip", "url with status 500", "url without a server", "url of ftp",
		"text without padding", "text that is not ASCII", "text that is not gzip", "text of half a drive",
		"text with a wrong checksum", "text with more behind", "larger than 64 MiB",
	}
	nothing := []string{"url of nothing", "text of other characters", "nothing"}
	other := []string{"text with other characters"}
	zeros := []string{"text with zeros behind"}
	noText := []string{"number", "object"}
	noVolume := []string{"url of gzip", "url of text", "no file system"}
	native := []string{"sectors of 4096 bytes, ext4"}
	nativeNoVolume := []string{"sectors of 4096 bytes, no file system"}
	return slices.Concat(
		plantedErased("K4", group, ends, []string{
			"url", "url of base64", "url of base64 in lines", "url of FAT", "url that redirects", "url in upper case",
			"text with line breaks", "text with white space", "text of two members", "text in image_info", "empty text",
			"null", "FAT", "ext4", "as large as its partition", "existing partition with FAT",
			"partition with its name", "qcow2*", "64 MiB, gpt",
		}, "/disks/ROOT/content/255"),
		plantedErased("K4", group, ends,
			withPrefix("sectors of 4096 bytes, ", "mbr", "FAT"), "/disks/NATIVE/content/255"),
		stillPlanted("K14", group, noTable, []string{"image without partitions"}, "/disks/ROOT/content/[01]"),
		absent("K14", group, noTable, []string{"image without partitions"}, "/disks/ROOT/whole"),
		unchanged("ROOT", "L5", group, first, slices.Concat(broken, nothing, other, zeros, noVolume, noText),
			start),
		absent("L5", group, first, slices.Concat(other, zeros, noVolume), drive),
		absent("L5", group, first, []string{"url of text"}, "/disks/ROOT/content/193"),
		absent("L5", group, first, slices.Concat(nothing, other, zeros, noVolume), "/disks/ROOT/ranges"),
		cylinders("L7", group, "ROOT", "d2d63b52923a79aa", "5da1623a44f84957", "*"),
		cylinders("L7", group, "ROOT", "debde6fd6d9b2404", "999254af4e982130", "*"),
		cylinders("L7", group, "NATIVE", "3ae4ea85432d3c29", "28e2d1be85b22796", "sectors of 4096 bytes, *"),
		cylinders("L7", group, "NATIVE", "ed86ea9f4f5b2c43", "2600415817f3671b", "sectors of 4096 bytes, mbr"),
		stillPlanted("L5", group, first, []string{"larger than 64 MiB"}, "/disks/ROOT/content/255"),
		withGot(`"DeploymentError"`, at("L5", group,
			"A config drive that is cut off is an error of the deployment; there it is a Python exception.",
			[]string{"text of half a drive"}, "/agent/0/body/command_error/type")),
		fails("L5", group, "A config drive without content is refused; there it is an empty partition.", 500,
			"DeploymentError", nothing...),
		writtenAs("null", "L5", group, "An empty text is no config drive; there it is an empty partition.",
			[]string{"empty text"}),
		fails("L5", group, "Text that is not base64 is refused; there other characters are skipped.", 500,
			"DeploymentError", other...),
		fails("L5", group, "Zeros behind the gzip data are refused; there they are ignored.", 500, "DeploymentError",
			zeros...),
		fails("L5", group, "A config drive without a file system is refused; there it is written.", 500,
			"DeploymentError", slices.Concat(noVolume, nativeNoVolume)...),
		invalid("L5", group,
			"A config drive that is not text is refused as a parameter; there it is a Python exception.", noText),
		unchanged("NATIVE", "L5", group, first, slices.Concat(native, nativeNoVolume), "/disks/NATIVE/content/[0-7]",
			"/disks/NATIVE/content/255"),
		absent("L5", group, first, slices.Concat(native, nativeNoVolume), "/disks/NATIVE/content/191"),
		absent("L5", group, first, nativeNoVolume, "/disks/NATIVE/ranges"),
		withGot(`"FAT16"`, at("L7", group,
			"A new FAT file system has smaller clusters, so that one of 64 MiB is FAT16; there it is FAT12.",
			[]string{"sectors of 4096 bytes, mbr"}, "/disks/NATIVE/parts/2/VERSION")),
	)
}
