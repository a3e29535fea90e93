package conformance

import "slices"

// fileDeviations returns the deviations of the group files.
func fileDeviations() []Deviation {
	const (
		group = "files"
		body  = "/agent/0/body/"
		kind  = body + "command_error/type"
		code  = body + "command_error/code"
	)
	return slices.Concat(
		at("P8", group, "A partition that is not there or cannot be mounted is an error of the command.",
			[]string{
				"inject/no such partition", "inject/no such device", "inject/partition without a file system",
			}, kind),
		at("P8", group, "A device that is not there is not found.", []string{"inject/no such device"}, code),
		fails("P8", group, "Partitions are counted from 1. There 0 means that none is given.", 400,
			"InvalidCommandParamsError", "inject/partition 0"),
		fails("P8", group, "A directory is not deleted. There nothing is deleted, and the step succeeds.", 500,
			"CommandExecutionError", "inject/deleted directory"),
		fails("P8", group, "Content that is not base64 is refused. There other characters are skipped.", 400,
			"InvalidCommandParamsError", "inject/content not base64"),
		invalidArguments("P8", group,
			"Wrong arguments of a step are invalid parameters; there they are a Python exception.", []string{
				"inject/path as a number", "inject/no content", "inject/content without padding",
				"inject/url with an unknown field", "inject/entry of text", "inject/more arguments",
			}),
		withGot(`"none"`, at("P8", group, "A file is not created if the step fails.", []string{
			"inject/partition 0", "inject/content not base64", "inject/content without padding",
			"inject/url with an unknown field", "inject/url not found", "inject/url without a server",
		}, "/files/1:/etc/*")),
		withGot(`"regular 04755 3:0 content of /etc/suid"`, at("P8", group,
			"The mode is set after the owner, because a change of the owner clears set-user-id bits.",
			[]string{"inject/set-user-id"}, "/files/1:/etc/suid")),
	)
}
