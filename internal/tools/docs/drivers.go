package main

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"

	"ironroot/initramfs"
)

// emulated lists the devices of QEMU on which tests boot the ramdisk, by the driver that they need.
var emulated = map[string]string{
	"ahci":         "`ich9-ahci`: `TestServerHardware`, `TestBuses`",
	"ata_piix":     "`piix3-ide`: `TestEraseIDEWithoutDriver`",
	"e100":         "`i82551`: `TestFirmware`",
	"e1000e":       "`e1000e`: `TestServerHardware`",
	"megaraid_sas": "`megasas`: `TestServerHardware`",
	"mptsas":       "`mptsas1068`: `TestServerHardware`",
	"nvme":         "`nvme`: `TestServerHardware`, `TestBuses`",
	"sdhci_pci":    "`sdhci-pci`: `TestCard`",
}

// drivers returns the table of the drivers of one kind of adapters, which the argument names.
func drivers(_ string, arguments []string, _ string) (string, error) {
	all, err := initramfs.Drivers(context.Background(), "amd64")
	if err != nil {
		return "", err
	}
	tested := maps.Clone(emulated)
	var text strings.Builder
	text.WriteString("| Driver | PCI IDs | Firmware | Tested on |\n|---|---|---|---|\n")
	for _, d := range all {
		if slices.Contains(arguments, d.Kind) {
			fmt.Fprintf(&text, "| `%s` | %d | %s | %s |\n", d.Name, d.IDs, files(d.Firmware), tested[d.Name])
		}
		delete(tested, d.Name)
	}
	if len(tested) > 0 {
		return "", fmt.Errorf("images have no drivers %s", slices.Sorted(maps.Keys(tested)))
	}
	return text.String(), nil
}

// files returns the first name of a list and the number of the others.
func files(names []string) string {
	switch len(names) {
	case 0:
		return ""
	case 1:
		return "`" + names[0] + "`"
	}
	return fmt.Sprintf("`%s` and %d more", names[0], len(names)-1)
}

// legacy returns the table of the drivers that images lack on purpose.
func legacy(string, []string, string) (string, error) {
	var text strings.Builder
	text.WriteString("| Driver | For |\n|---|---|\n")
	for _, l := range initramfs.LegacyDrivers {
		fmt.Fprintf(&text, "| `%s` | %s |\n", l.Pattern, l.Reason)
	}
	return text.String(), nil
}
