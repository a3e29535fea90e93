package conformance

import "slices"

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
		absent("K4", group, "The end of the disk is erased, which can contain metadata of a former tenant.",
			append(transferred, withPrefix("checksum/", "sha*", "algorithm in capitals",
				"unknown algorithm and a checksum", "wrong", "wrong, and the right checksum",
				"right, and a wrong checksum", "with white space", "checksum of 64", "checksum of 128",
				"checksum of 64, wrong", "checksum of 32 beside a hash", "file one", "file many", "file bsd",
				"file wrong", "file comment", "file as the hash", "file of *")...), "/disks/ROOT/content/5119"),
		absent("K4", group, start, append(wrong, "download/half"), first, "/disks/ROOT/parts", "/disks/ROOT/table",
			"/disks/ROOT/whole"),
		absent("K4", group, start, withPrefix("download/", "status *", "no server", "redirect loop",
			"second of two, 404",
			"two that fail", "basic, wrong password", "strategy *", "header, wrong", "proxy that is not there"), first),
		at("K9", group, "The agents write different amounts before the connection is lost.",
			[]string{"download/half"}, "/disks/ROOT/content/3"),
		succeeds("K2", group, "Names of algorithms in capitals and white space around digests are accepted.", lenient),
		writtenAs("checksum/checksum of 64", "K2", group,
			"Names of algorithms in capitals and white space around digests are accepted.", lenient),
		fails("K2", group, "If MD5 is not enabled, it is refused as os_hash_algo, too.", 500, "RESTError",
			"checksum/md5"),
		unchanged("ROOT", "K2", group, "If MD5 is not enabled, it is refused as os_hash_algo, too.",
			withPrefix("checksum/", "md5"), "/disks/ROOT/content/[0-7]"),
		absent("K2", group, "If MD5 is not enabled, it is refused as os_hash_algo, too.",
			withPrefix("checksum/", "md5"), "/disks/ROOT/ranges"),
		withGot(`"RESTError"`, at("K2", group, malformed, early, kind)),
		unchanged("ROOT", "K2", group, malformed, early, "/disks/ROOT/content/[0-7]"),
		withGot(`"ImageDownloadError"`, at("K3", group, shorter, another, kind)),
		unchanged("ROOT", "K3", group, shorter, another, "/disks/ROOT/content/[0-7]"),
		withGot(`"ImageDownloadError"`, at("K9", group, "A server that cannot be reached is an error of the download.",
			withPrefix("download/", "no server", "redirect loop", "proxy that is not there"), kind)),
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
