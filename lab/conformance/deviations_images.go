package conformance

import "slices"

// noTable is the reason of deviations of images for whole disks that begin with something else.
const noTable = "An image without a partition table that fits the disk is refused before it is written."

// imageDeviations returns the deviations of images of whole disks of the group images.
func imageDeviations() []Deviation {
	const (
		group  = "images"
		kind   = "/agent/0/body/command_error/type"
		first  = "/disks/ROOT/content/0"
		ends   = "The end of the disk is erased, which can contain metadata of a former tenant."
		copied = "Images of format gpt are copied. There they are passed to a program that does not know the format."
		iso    = "Images of format iso are copied if they have a partition table. There they are passed to a program " +
			"that does not know the format."
		again = "An image that is not on the disk any more is written again."
		empty = "An empty image is refused."
		large = "Of an image that is larger than the disk, nothing is written. The ends of the disk are erased."
	)
	gpt, mbr := []string{"gpt declared"}, []string{"mbr without a format"}
	erased := []string{"qcow2, disk erased since"}
	larger := []string{"larger than the disk", "larger than the disk from a file"}
	return slices.Concat(
		plantedErased("K4", group, ends, slices.Concat(gpt, mbr, erased, []string{
			"raw streamed", "gpt streamed", "raw from a file", "gpt from a file", "qcow2", "qcow2 zlib",
			"qcow2 zstd", "qcow2 version 2", "qcow2 without a format", "qcow2 unknown", "qcow2 cut",
			"empty", "not whole sectors", "twice", "drive, *",
		}), "/disks/ROOT/content/5119"),
		plantedErased("K4", group, ends, []string{"gpt of 4096 bytes"}, "/disks/NATIVE/content/5119"),
		plantedErased("K4", group, ends, []string{"drive, *"}, "/disks/SMALL/content/69", "/disks/BIG/content/3145727"),
		succeeds("K7", group, copied, slices.Concat(gpt, mbr)),
		writtenAs("gpt from a file", "K7", group, copied, gpt),
		writtenAs("raw from a file", "K7", group, copied, mbr),
		withGot(`"DeploymentError"`, at("K7", group, iso, []string{"iso"}, kind)),
		succeeds("E2", group, again, erased),
		writtenAs("qcow2", "E2", group, again, erased),
		withGot("null", at("E5", group, "A failed command leaves no UUIDs.",
			[]string{"qcow2 declared raw", "junk", "empty", "gzip declared raw"},
			"/agent/1/body/command_result/root uuid")),
		withGot(`"InvalidImage"`, at("K14", group, empty, []string{"empty"}, kind)),
		absent("K14", group, empty, []string{"empty"}, first),
		stillPlanted("K14", group, noTable, []string{"qcow2 declared raw", "junk", "gzip declared raw"},
			"/disks/ROOT/content/[0-7]"),
		unchanged("ROOT", "K14", group, noTable, []string{"gpt of 4096 bytes on 512"}, "/disks/ROOT/content/[0-7]"),
		unchanged("NATIVE", "K14", group, noTable, []string{"gpt of 512 bytes on 4096"}, "/disks/NATIVE/content/[0-7]"),
		withGot(`"ImageWriteError"`, at("K10", group, large, larger[:1], kind)),
		stillPlanted("K10", group, large, larger, "/disks/TINY/content/[12]"),
		absent("K10", group, large, larger, "/disks/TINY/content/[03]", "/disks/TINY/parts", "/disks/TINY/table",
			"/disks/TINY/whole"),
		cylinders("K15", group, "NATIVE", "a84dbc5022162b7d", "408fb1a1d920372a", "gpt of 4096 bytes"),
		cylinders("L7", group, "ROOT", "4df5532c75fbe00e", "a229f5775f767975", "drive, mbr"),
		cylinders("L7", group, "ROOT", "2e0982f3d4c43694", "2530afc2b9db9463", "drive, three primary partitions"),
		cylinders("L7", group, "ROOT", "61f312a4aed60c7d", "61aa369773c1eadc", "drive, mbr with unused entries"),
		cylinders("L7", group, "ROOT", "33497f5c55680ee7", "d7e37931a846c6e6", "drive, extended partition"),
		cylinders("L7", group, "SMALL", "8fccdf715fefe683", "22e882055015551f", "drive, small disk"),
	)
}
