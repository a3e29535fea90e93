package conformance

import "slices"

// hintDeviations returns the deviations of the group hints.
func hintDeviations() []Deviation {
	var list []Deviation
	both := func(row, reason string, scenarios ...string) {
		const problem = "/agent/0/body/command_error"
		list = append(list, at(row, "hints", reason, scenarios, problem+"/code", problem+"/type")...)
	}
	both(
		"J1",
		"Unusable hints are an error of the command; there they raise an exception that nothing handles.",
		`serial: "\\u003cin\\u003e "`,
		`serial: "\\u003call-in\\u003e SCSI 7F"`,
		`model: "\\u003call-in\\u003e fast disk"`,
		`size: "\\u003cin\\u003e 5"`,
		`size: "s\\u003c 6"`,
		"a list",
	)
	both(
		"J4",
		"Unusable entries of skip_block_devices are an error of the command; there nothing handles them.",
		"skip all",
		"skip invalid hint",
		"skip invalid size",
		"skip an empty entry",
		"skip no list",
	)
	return list
}

// imageDeviations returns the deviations of the group images.
func imageDeviations() []Deviation {
	var list []Deviation
	add := func(row, reason string, scenarios, paths []string) {
		list = append(list, at(row, "images", reason, scenarios, paths...)...)
	}
	list = append(list, plantedErased("K4", "images",
		"The end of the disk is erased, which can contain metadata of a former tenant.", []string{"*"},
		"/disks/ROOT/content/5119", "/disks/NATIVE/content/5119", "/disks/SMALL/content/69",
		"/disks/BIG/content/3145727")...)
	add("K4", "The first MiB of the disk is erased before a transfer, so that no former system boots after a failure.",
		[]string{"gzip declared raw"}, []string{"/disks/ROOT/content/0"})
	const copied = "Images of format gpt are copied. There they are passed to a program that does not know the format."
	list = slices.Concat(list,
		succeeds("K7", "images", copied, []string{"gpt declared", "mbr without a format"}),
		writtenAs("gpt from a file", "K7", "images", copied, []string{"gpt declared"}),
		writtenAs("raw from a file", "K7", "images", copied, []string{"mbr without a format"}),
	)
	add("K7", "Images of format iso are copied. There they are passed to a program that does not know the format.",
		[]string{"iso"}, []string{
			"/agent/0/body/command_error/type", "/disks/ROOT/content/0", "/disks/ROOT/whole",
		})
	const again = "An image that is not on the disk any more is written again."
	list = slices.Concat(list,
		succeeds("E2", "images", again, []string{"qcow2, disk erased since"}),
		writtenAs("qcow2", "E2", "images", again, []string{"qcow2, disk erased since"}),
	)
	add("E5", "A failed command leaves no UUIDs.", []string{
		"qcow2 declared raw", "junk", "empty", "gzip declared raw",
	}, []string{"/agent/1/body/command_result/root uuid"})
	add("K14", "An empty image is refused.", []string{"empty"}, []string{
		"/agent/0/body/command_error/type", "/disks/ROOT/content/0", "/disks/ROOT/ranges/0/what",
	})
	add("K10", "An image that is larger than the disk is refused before it is written.",
		[]string{"larger than the disk"}, []string{"/agent/0/body/command_error/type"})
	add("K10", "An image that is larger than the disk is refused before it is written.",
		[]string{"larger than the disk*"}, []string{
			"/disks/TINY/content/[0-3]", "/disks/TINY/parts", "/disks/TINY/table", "/disks/TINY/whole",
		})
	return list
}
