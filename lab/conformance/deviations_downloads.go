package conformance

import "slices"

// withPrefix returns names with a prefix.
func withPrefix(prefix string, names ...string) []string {
	list := make([]string, len(names))
	for i, name := range names {
		list[i] = prefix + name
	}
	return list
}

// ended returns the paths of a command's result.
func ended() []string {
	const body = "/agent/0/body/"
	return []string{body + "command_error", body + "command_result", body + "command_status"}
}

// rejected returns the paths of the reply to a command that only one of the agents accepts.
func rejected() []string {
	const body = "/agent/0/body/"
	return append(ended(), "/agent/0/status", body+"command_name", body+"faultcode", body+"faultstring", body+"id")
}

// succeeds returns deviations of commands that succeed only with this ramdisk.
func succeeds(row, group, reason string, scenarios []string) []Deviation {
	const body = "/agent/0/body/"
	return slices.Concat(
		erased(row, group, reason, scenarios, body+"command_error"),
		withGot(`"SUCCEEDED"`, at(row, group, reason, scenarios, body+"command_status")),
		at(row, group, reason, scenarios, body+"command_result"),
	)
}

// writtenAs returns a deviation of scenarios in which this ramdisk leaves the disks as ironic-python-agent does in
// another scenario.
func writtenAs(like, row, group, reason string, scenarios []string) []Deviation {
	all := at(row, group, reason, scenarios, "/disks")
	for i := range all {
		all[i].Like = like
	}
	return all
}

// plantedErased returns deviations of disks on which only this ramdisk erases the planted text. Paths with planted text
// only, and paths with planted text and data, have deviations of their own.
func plantedErased(row, group, reason string, scenarios []string, paths ...string) []Deviation {
	var all []Deviation
	for _, c := range []struct{ want, got string }{{`"planted"`, "null"}, {`"planted, data"`, `"data"`}} {
		for _, d := range at(row, group, reason, scenarios, paths...) {
			d.Want, d.Got = c.want, c.got
			all = append(all, d)
		}
	}
	return all
}

// unwritten returns deviations of the disk ROOT for scenarios in which only ironic-python-agent writes to it, before it
// fails.
func unwritten(row, group, reason string, scenarios []string, chunks ...string) []Deviation {
	return append(stillPlanted(row, group, reason, scenarios, chunks...),
		erased(row, group, reason, scenarios, "/disks/ROOT/parts", "/disks/ROOT/table", "/disks/ROOT/whole")...)
}

// stillPlanted returns deviations of chunks that keep the planted text and that ironic-python-agent writes to.
func stillPlanted(row, group, reason string, scenarios []string, chunks ...string) []Deviation {
	return withGot(`"planted"`, at(row, group, reason, scenarios, chunks...))
}

// invalid returns deviations of commands that this ramdisk rejects with status 400 and ironic-python-agent starts.
func invalid(row, group, reason string, scenarios []string) []Deviation {
	const body = "/agent/0/body/"
	return slices.Concat(
		withGot("400", at(row, group, reason, scenarios, "/agent/0/status")),
		withGot(`"Client"`, at(row, group, reason, scenarios, body+"faultcode")),
		withGot(`"\u003ctext \u003e"`, at(row, group, reason, scenarios, body+"faultstring")),
		erased(row, group, reason, scenarios, append(ended(), body+"command_name", body+"id")...),
	)
}

// downloadDeviations returns the deviations of checksums and downloads of the group images.
func downloadDeviations() []Deviation {
	const (
		group     = "images"
		first     = "/disks/ROOT/content/0"
		kind      = "/agent/0/body/command_error/type"
		malformed = "A digest of the wrong length, or with other characters than hexadecimal digits, is " +
			"rejected before the transfer."
		shorter = "A checksum file without a digest of the named algorithm, or a longer one, is refused before the " +
			"transfer."
		start = "The first MiB of the disk is erased before a transfer, so that no former system boots after a " +
			"failure."
		next    = "A server that cannot be reached, or has another content, is followed by the next one."
		noProxy = "Hosts of no_proxy are reached without the proxy. There no_proxy has no effect on proxies."
	)
	second := withPrefix("download/", "second of two, no server", "second of two, half", "second of two, another image")
	direct := withPrefix("download/", "proxy, but not for this host")
	lenient := withPrefix("checksum/", "algorithm in capitals", "with white space")
	early := withPrefix("checksum/", "of another length", "no hexadecimal digits")
	another := withPrefix("checksum/", "file of another algorithm")
	wrong := withPrefix("checksum/", "sha1", "wrong", "wrong, and the right checksum", "checksum of 64, wrong",
		"file wrong")
	urls := withPrefix("download/", "url null", "url without a scheme", "url of ftp", "url of a file")
	transferred := withPrefix("download/", "status *", "no server", "half", "without a length", "redirect*",
		"second of two, *", "two that fail", "basic", "basic, *", "strategy *", "header", "header, wrong",
		"header and basic", "proxy*")
	return slices.Concat(
		erased("K4", group, "The end of the disk is erased, which can contain metadata of a former tenant.",
			append(transferred, withPrefix("checksum/", "sha*", "algorithm in capitals",
				"unknown algorithm and a checksum", "wrong", "wrong, and the right checksum",
				"right, and a wrong checksum", "with white space", "checksum of 64", "checksum of 128",
				"checksum of 64, wrong", "checksum of 32 beside a hash", "file one", "file many", "file bsd",
				"file wrong", "file comment", "file as the hash", "file of *")...), "/disks/ROOT/content/5119"),
		erased("K4", group, start, append(wrong, "download/half"), first, "/disks/ROOT/parts", "/disks/ROOT/table",
			"/disks/ROOT/whole"),
		erased("K4", group, start, withPrefix("download/", "status *", "no server", "redirect loop",
			"second of two, 404",
			"two that fail", "basic, wrong password", "strategy *", "header, wrong", "proxy that is not there"), first),
		at("K9", group, "The agents write different amounts before the connection is lost.",
			[]string{"download/half"}, "/disks/ROOT/content/3"),
		succeeds("K2", group, "Names of algorithms in capitals and white space around digests are accepted.", lenient),
		writtenAs("checksum/checksum of 64", "K2", group,
			"Names of algorithms in capitals and white space around digests are accepted.", lenient[:1]),
		at("K2", group, "If MD5 is not enabled, it is refused as os_hash_algo, too.", withPrefix("checksum/", "md5"),
			ended()...),
		unwritten("K2", group, "If MD5 is not enabled, it is refused as os_hash_algo, too.",
			withPrefix("checksum/", "md5"), "/disks/ROOT/content/[0-7]"),
		at("K2", group, malformed, early,
			kind),
		unwritten("K2", group, malformed, early,
			"/disks/ROOT/content/[0-7]"),
		withGot(`"ImageDownloadError"`, at("K3", group, shorter, another, kind)),
		unwritten("K3", group, shorter, another, "/disks/ROOT/content/[0-7]"),
		at("K9", group, "A server that cannot be reached is an error of the download.",
			withPrefix("download/", "no server", "redirect loop", "proxy that is not there"), kind),
		succeeds("K9", group, next, second),
		writtenAs("download/redirect", "K9", group, next, second),
		invalid("K1", group, "Unusable URLs are refused as parameters; there they are a Python exception.", urls),
		invalid("K12", group, "A header that is not base64 is refused as a parameter; there the request is sent.",
			withPrefix("download/", "header, not base64")),
		invalid("K11", group, "Proxies that are no object are refused as parameters. There they are an exception.",
			withPrefix("download/", "proxies of text")),
		succeeds("K11", group, noProxy, direct),
		writtenAs("download/redirect", "K11", group, noProxy, direct),
	)
}

// partitionDeviations returns the deviations of partition images of the group images.
func partitionDeviations() []Deviation {
	const (
		group = "images"
		kind  = "/agent/0/body/command_error/type"
		code  = "/agent/0/body/command_error/code"
		uuids = "/agent/1/body/command_result/"
	)
	absent := withPrefix("partition/", "root_mb missing", "swap_mb missing", "ephemeral_mb missing",
		"ephemeral_format missing", "preserve_ephemeral missing",
		`root_mb "large"`)
	null := withPrefix("partition/", "root_mb null")
	few := withPrefix("partition/", "root_mb 0", "root_mb -1")
	half := withPrefix("partition/", "root_mb 64.5")
	numbers := slices.Concat(absent, null, few, half)
	texts := withPrefix("partition/", `root_mb "64"`, "swap_mb text")
	format := withPrefix("partition/", "ephemeral without a format", "ephemeral of an unknown format")
	large := withPrefix("partition/", "larger than root_mb", "larger than the disk")
	kept := withPrefix("partition/", "ephemeral kept")
	noTable := withPrefix("partition/", "another image_type", "image_type in capitals")
	const decided = "The layout is validated before the first write, so that an invalid one does not change the disk."
	laidOut := withPrefix("partition/", "root only", "swap", "swap, *", "swap_mb null", "ephemeral",
		"ephemeral of vfat",
		"config drive", "bios*", "uefi, msdos", "secure boot", "no mode", "* from a file", "sectors of 4096 bytes",
		"no file system")
	return slices.Concat(
		plantedErased("L1", group, "Both ends of the disk are erased, which can contain metadata of a former tenant.",
			append(laidOut, texts...), "/disks/*/content/[0-9]"),
		plantedErased("L1", group, "Both ends of the disk are erased, which can contain metadata of a former tenant.",
			slices.Concat(laidOut, texts, noTable), "/disks/*/content/5119"),
		at("L3", group, "A new ext4 file system has its tables at other places than that of mke2fs.",
			withPrefix("partition/", "ephemeral", "swap, ephemeral and config drive"), "/disks/ROOT/content/567"),
		invalid("L1", group, "Sizes and flags of a layout are checked as parameters.", numbers),
		unwritten("L1", group, decided, slices.Concat(few, half, large, format), "/disks/ROOT/content/[0-9]",
			"/disks/ROOT/content/5119"),
		erased("L1", group, decided, append(half, large[0]), "/disks/ROOT/content/551"),
		stillPlanted("L3", group, "The layout of a disk whose ephemeral partition is kept is checked first.", kept,
			"/disks/ROOT/content/[12]"),
		succeeds("L1", group, "Sizes can be texts of digits.", texts),
		writtenAs("partition/root only", "L1", group, "Sizes can be texts of digits.", texts[:1]),
		writtenAs("partition/swap", "L1", group, "Sizes can be texts of digits.", texts[1:]),
		at("L1", group, "Sizes can be texts of digits.", texts[1:], uuids+"partitions/*"),
		at("L4", group, decided, large, kind),
		at("L4", group, decided, large[:1], code),
		at("L3", group, "An ephemeral partition without a format, or with an unknown one, is refused before the "+
			"first write; there the server fails.", format, "/agent/0/status", "/agent/0/body/faultcode"),
		at("L3", group, "An unknown format of an ephemeral partition is an error of the command.", format[1:],
			rejected()...),
		at("L3", group, "The layout of a disk whose ephemeral partition is kept is checked first.", kept, kind),
		at("E5", group, "A failed command leaves no new UUIDs.",
			slices.Concat(absent, few, texts[:1], format[:1], large, kept, noTable), uuids+"*"),
		at("K14", group, "A file system without a partition table is an error; parted there lists it as a partition.",
			noTable, ended()...),
	)
}
