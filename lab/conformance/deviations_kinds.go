package conformance

import (
	"fmt"
	"slices"
	"strconv"
)

// The functions of this file return the kinds of deviations that several groups have.

// at returns a deviation for each path in the same scenarios.
func at(row, group, reason string, scenarios []string, paths ...string) []Deviation {
	var all []Deviation
	for _, path := range paths {
		all = append(all, Deviation{Row: row, Group: group, Scenarios: scenarios, Path: path, Reason: reason})
	}
	return all
}

// withPrefix returns names with a prefix.
func withPrefix(prefix string, names ...string) []string {
	list := make([]string, len(names))
	for i, name := range names {
		list[i] = prefix + name
	}
	return list
}

// resultPaths returns the paths of a command's result.
func resultPaths() []string {
	const body = "/agent/0/body/"
	return []string{body + "command_error", body + "command_result", body + "command_status"}
}

// withGot returns deviations that only permit one value of this ramdisk.
func withGot(value string, all []Deviation) []Deviation {
	for i := range all {
		all[i].Got = value
	}
	return all
}

// absent returns deviations of values that only ironic-python-agent has. On a disk, nothing that this ramdisk leaves
// there is hidden.
func absent(row, group, reason string, scenarios []string, paths ...string) []Deviation {
	return withGot("null", at(row, group, reason, scenarios, paths...))
}

// added returns deviations of values that ironic-python-agent does not have.
func added(row, group, reason string, scenarios []string, paths ...string) []Deviation {
	all := at(row, group, reason, scenarios, paths...)
	for i := range all {
		all[i].Want = "null"
	}
	return all
}

// stillPlanted returns deviations of chunks that keep the planted text and that ironic-python-agent writes to.
func stillPlanted(row, group, reason string, scenarios []string, chunks ...string) []Deviation {
	return withGot(`"planted"`, at(row, group, reason, scenarios, chunks...))
}

// unchanged returns deviations of the disk with a serial number for scenarios in which only ironic-python-agent writes
// to it.
func unchanged(serial, row, group, reason string, scenarios []string, chunks ...string) []Deviation {
	disk := "/disks/" + serial
	return append(stillPlanted(row, group, reason, scenarios, chunks...),
		absent(row, group, reason, scenarios, disk+"/parts", disk+"/table", disk+"/whole")...)
}

// plantedErased returns deviations of disks on which only this ramdisk erases the planted text.
func plantedErased(row, group, reason string, scenarios []string, paths ...string) []Deviation {
	all := at(row, group, reason, scenarios, paths...)
	for i := range all {
		all[i].Erases = true
	}
	return all
}

// succeeds returns deviations of commands that succeed only with this ramdisk.
func succeeds(row, group, reason string, scenarios []string) []Deviation {
	const body = "/agent/0/body/"
	return slices.Concat(
		absent(row, group, reason, scenarios, body+"command_error"),
		withGot(`"SUCCEEDED"`, at(row, group, reason, scenarios, body+"command_status")),
		at(row, group, reason, scenarios, body+"command_result"),
	)
}

// invalid returns deviations of commands that this ramdisk rejects with status 400 and ironic-python-agent starts.
func invalid(row, group, reason string, scenarios []string) []Deviation {
	const body = "/agent/0/body/"
	return slices.Concat(
		withGot("400", at(row, group, reason, scenarios, "/agent/0/status")),
		withGot(`"Client"`, at(row, group, reason, scenarios, body+"faultcode")),
		withGot(`"\u003ctext \u003e"`, at(row, group, reason, scenarios, body+"faultstring")),
		absent(row, group, reason, scenarios, append(resultPaths(), body+"command_name", body+"id")...),
	)
}

// runs returns deviations of commands that ironic-python-agent rejects and this ramdisk starts. kind is the type of the
// error with which they fail; those with "" succeed.
func runs(row, group, reason, kind string, scenarios ...string) []Deviation {
	const body = "/agent/0/body/"
	ends := succeeds(row, group, reason, scenarios)
	if kind != "" {
		ends = fails(row, group, reason, 500, kind, scenarios...)
	}
	return slices.Concat(
		withGot("200", at(row, group, reason, scenarios, "/agent/0/status")),
		absent(row, group, reason, scenarios, body+"faultcode", body+"faultstring"),
		withGot(`"\u003cid\u003e"`, at(row, group, reason, scenarios, body+"id")),
		at(row, group, reason, scenarios, body+"command_name"),
		ends,
	)
}

// fails returns deviations of commands that fail only with this ramdisk, with an error of the given type.
func fails(row, group, reason string, code int, kind string, scenarios ...string) []Deviation {
	const body = "/agent/0/body/"
	problem := fmt.Sprintf(`{"code":%d,"details":"\u003ctext \u003e","message":"\u003ctext \u003e","type":%q}`,
		code, kind)
	return slices.Concat(
		withGot(problem, at(row, group, reason, scenarios, body+"command_error")),
		absent(row, group, reason, scenarios, body+"command_result"),
		withGot(`"FAILED"`, at(row, group, reason, scenarios, body+"command_status")),
	)
}

// invalidArguments returns deviations of failed commands that only this ramdisk reports as invalid parameters.
func invalidArguments(row, group, reason string, scenarios []string) []Deviation {
	const problem = "/agent/0/body/command_error"
	return append(withGot("400", at(row, group, reason, scenarios, problem+"/code")),
		withGot(`"InvalidCommandParamsError"`, at(row, group, reason, scenarios, problem+"/type"))...)
}

// writtenAs returns deviations of scenarios in which this ramdisk leaves the disks with the given serial numbers, or
// all disks, as ironic-python-agent does in the scenario like.
func writtenAs(like, row, group, reason string, scenarios []string, serials ...string) []Deviation {
	if len(serials) == 0 {
		serials = []string{"*"}
	}
	all := at(row, group, reason, scenarios, withPrefix("/disks/", serials...)...)
	for i := range all {
		all[i].Like = like
	}
	return all
}

// cylinders returns a deviation of a disk's first sector. want and got are its digests. In the sector of this ramdisk,
// addresses of cylinder, head and sector are the image's; in partitions that it adds they are fe ff ff.
func cylinders(row, group, serial, want, got string, scenarios ...string) []Deviation {
	return []Deviation{{
		Row: row, Group: group, Scenarios: scenarios, Path: "/disks/" + serial + "/ranges/0/what",
		Want: strconv.Quote(want), Got: strconv.Quote(got),
		Reason: "Addresses of cylinder, head and sector have the values for sectors that they cannot address. There " +
			"the tools calculate some of them.",
	}}
}
