package conformance

// driveDeviations returns the deviations of the group drives.
func driveDeviations() []Deviation {
	var list []Deviation
	add := func(row, reason string, scenarios []string, paths ...string) {
		list = append(list, at(row, "drives", reason, scenarios, paths...)...)
	}
	list = append(list, plantedErased("K4", "drives",
		"The end of the disk is erased, which can contain metadata of a former tenant.", []string{"*"},
		"/disks/ROOT/content/255", "/disks/NATIVE/content/255")...)

	image := []string{"/disks/ROOT/content/[0-7]", "/disks/ROOT/parts", "/disks/ROOT/table", "/disks/ROOT/whole"}
	reply := []string{
		"/agent/0/body/command_error", "/agent/0/body/command_result", "/agent/0/body/command_status",
	}
	const first = "The config drive is fetched before the image is written, so that a broken one changes no disk."
	add("L5", first, []string{
		"url not found", "url of base64 that is not gzip", "url with status 500", "url without a server", "url of ftp",
		"text without padding", "text that is not ASCII", "text that is not gzip", "text of half a drive",
		"text with a wrong checksum", "text with more behind", "larger than 64 MiB",
	}, image...)
	add("L5", "A config drive that is cut off is an error of the deployment; there it is a Python exception.",
		[]string{"text of half a drive"}, "/agent/0/body/command_error/type")

	refused := []string{"url of nothing", "text of other characters", "nothing"}
	add("L5", "A config drive without content is refused; there it is an empty partition.", refused, reply...)
	add("L5", first, refused, image...)
	add("L5", "An empty text is no config drive; there it is an empty partition.",
		[]string{"empty text"}, "/disks/ROOT/parts", "/disks/ROOT/table/partitions")

	other := []string{"text with other characters"}
	add("L5", "Text that is not base64 is refused; there other characters are skipped.", other, reply...)
	add("L5", first, other, append(image, "/disks/ROOT/content/192")...)

	zeros := []string{"text with zeros behind"}
	add("L5", "Zeros behind the gzip data are refused; there they are ignored.", zeros, reply...)
	add("L5", first, zeros, append(image, "/disks/ROOT/content/192")...)

	noText := []string{"number", "object"}
	add("L5", "A config drive that is not text is refused as a parameter; there it is a Python exception.", noText,
		"/agent/0/status", "/agent/0/body/command_error", "/agent/0/body/command_name", "/agent/0/body/command_result",
		"/agent/0/body/command_status", "/agent/0/body/faultcode", "/agent/0/body/faultstring", "/agent/0/body/id")
	add("L5", first, noText, image...)

	list = append(list,
		stillPlanted("L5", "drives", first, []string{"larger than 64 MiB"}, "/disks/ROOT/content/255")...)
	native := []string{"sectors of 4096 bytes, ext4"}
	list = append(list, stillPlanted("L5", "drives", first, native, "/disks/NATIVE/content/255")...)
	add("L7", "A drive whose file system cannot be mounted on the disk is copied if it is ISO 9660 or FAT, not ext4.",
		native, reply...)
	add("L5", first, native, "/disks/NATIVE/content/[0-7]", "/disks/NATIVE/content/191", "/disks/NATIVE/parts",
		"/disks/NATIVE/table", "/disks/NATIVE/whole")
	add("L7", "A new FAT file system has smaller clusters, so that one of 64 MiB is FAT16; there it is FAT12.",
		[]string{"sectors of 4096 bytes, mbr"}, "/disks/NATIVE/parts/2/VERSION")
	return list
}
