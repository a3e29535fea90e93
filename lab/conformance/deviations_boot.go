package conformance

import "slices"

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
		}, {
			Row: "M2", Group: group, Reason: "A CSV file creates no entry of a loader that is missing.",
			Scenarios: []string{"CSV of a missing loader"}, Path: "/boot/order",
			Got: `["* PXE on the first card\tPciRoot(0x0)/Pci(0x3,0x0)/MAC(5254001a0001,1)",` +
				`"* grub in the label only\tPciRoot(0x0)/Pci(0x3,0x0)/File(\\EFI\\diagnostics.efi)",` +
				`"* UiApp\tFvVol(7cb8bdc9-f8eb-4f34-aaea-3ee4af6516a1)/FvFile(462caa21-7614-4503-836e-8ab6f4662331)"]`,
		}},
	)
}
