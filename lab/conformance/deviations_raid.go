package conformance

// raidDeviations returns the deviations of the group raid.
func raidDeviations() []Deviation {
	created := []string{"level 1 and 0", "nvme"}
	return []Deviation{
		{
			Row: "N1", Group: "raid", Path: "/agent/0/body/command_error/type",
			Scenarios: []string{
				"invalid/configuration of a list", "invalid/configuration of text", "invalid/entries null",
				"invalid/entries of text", "invalid/entry of text", "invalid/no level", "invalid/other keys only",
				"invalid/second without a *",
			},
			Reason: "A malformed configuration is a problem of software RAID; there it is a Python exception.",
		},
		{
			Row: "N2", Group: "raid", Scenarios: created, Path: "/disks/*/arrays/*/Host",
			Reason: "Arrays belong to any host, so that mdadm assembles them by their names.",
		},
		{
			Row: "N2", Group: "raid", Scenarios: created, Path: "/disks/*/parts/*/Host",
			Reason: "Arrays belong to any host, so that mdadm assembles them by their names.",
		},
		{
			Row: "N2", Group: "raid", Scenarios: created, Path: "/disks/*/arrays/1/Internal Bitmap",
			Reason: "Arrays with redundancy have a bitmap, so that a member that was removed for a while can return.",
		},
		{
			Row:       "N2",
			Group:     "raid",
			Scenarios: created,
			Path:      "/disks/*/arrays/2/Layout",
			Reason:    "The layout of level 0 is stated if members differ in size; the mdadm there always states it.",
		},
		{
			Row: "N3", Group: "raid", Scenarios: []string{"delete/two"}, Path: "/disks/*/content", Got: "null",
			Reason: "Partition tables are zeroed; wipefs erases their signatures only.",
		},
	}
}
