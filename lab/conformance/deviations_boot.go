package conformance

import (
	"fmt"
	"path"
	"slices"
	"strconv"
)

// bootDeviations returns the deviations of the group bootentries.
func bootDeviations() []Deviation {
	const (
		group   = "bootentries"
		problem = "/agent/0/body/command_error"
	)
	return slices.Concat(
		at("M1", group, "A disk without a partition table has no EFI system partition. There it is a Python exception.",
			[]string{"no partition table"}, problem+"/code", problem+"/type"),
		at("M1", group, "An EFI system partition in an MBR is found.", []string{"MBR"}, problem),
		[]Deviation{{
			Row: "M1", Group: group, Reason: "An EFI system partition in an MBR is found.", Scenarios: []string{"MBR"},
			Path: "/agent/0/body/command_status", Got: `"SUCCEEDED"`,
		}},
		at("M1", group, "An EFI system partition in an MBR is found. Its boot entry remains in the next scenario.",
			[]string{"MBR", "MBR without an ESP"}, "/boot/order/[12]"),
		[]Deviation{{
			Row: "M1", Group: group, Reason: "An EFI system partition in an MBR is found.",
			Scenarios: []string{"MBR", "MBR without an ESP"}, Path: "/boot/order/0",
			Got: `"* ironic1\tHD(1,MBR,0x12345618,0x800,0xc000)/File(\\EFI\\BOOT\\BOOTX64.EFI)"`,
		}},
		withGot(bootEntry(0x28, `\EFI\debian\grubx64.efi`), at("M2", group,
			"A CSV file creates no entry of a loader that is missing; another loader gets one.",
			[]string{"CSV of a missing loader"}, "/boot/order/0")),
		otherLoaders(group),
		slices.DeleteFunc(fails("M8", group, "An EFI system partition without a known loader is an error.", 500,
			"CommandExecutionError", "no loader", "empty file system", "failures are ignored by the node",
		), func(d Deviation) bool { return path.Base(d.Path) == "command_result" }), // which is null in both
	)
}

// otherLoaders returns the deviations of boot entries for loaders that ironic-python-agent does not look for.
func otherLoaders(group string) []Deviation {
	var all []Deviation
	for _, d := range []struct {
		scenario string
		disk     int
		loader   string
	}{
		{"vendor's shim", 3, `\EFI\debian\shimx64.efi`},
		{"vendor's GRUB", 4, `\EFI\debian\grubx64.efi`},
		{"two vendors", 6, `\EFI\centos\shimx64.efi`},
		{"Windows", 7, `\EFI\Microsoft\Boot\bootmgfw.efi`},
		{"vendor's shim.efi", 8, `\EFI\suse\shim.efi`},
		{"loader without a directory of vendors", 10, `\grubx64.efi`},
		{"loader two directories deep", 11, lastOther},
	} {
		all = append(all, withGot(bootEntry(d.disk, d.loader), at("M3", group,
			"Loaders of distributions and of Windows are found without a CSV file.", []string{d.scenario},
			"/boot/order/0"))...)
	}
	const remains = "The boot entry of a loader that ironic-python-agent does not find remains."
	return slices.Concat(all,
		withGot(bootEntry(11, lastOther), at("M3", group, remains, []string{
			"CSV", "CSV without a byte order mark", "CSV of ASCII", "CSV with two lines", "CSV, empty",
			"CSV with a label only",
		}, "/boot/order/1")),
		withGot(bootEntry(11, lastOther), at("M3", group, remains, []string{
			"CSV with the label of a former entry", "no loader", "empty file system", "no file system",
			"partition that is no ESP", "no partition table",
		}, "/boot/order/2")))
}

// lastOther is the loader of the last scenario before the scenarios of CSV files. Its entry remains in them.
const lastOther = `\EFI\debian\deep\shimx64.efi`

// bootEntry returns the JSON of the entry ironic1 for a loader on the first partition of a disk of the group.
func bootEntry(disk int, loader string) string {
	return strconv.Quote(fmt.Sprintf(
		"* ironic1\tHD(1,GPT,45535020-0000-4000-80%02x-000000000001,0x800,0xc000)/File(%s)", disk, loader))
}
