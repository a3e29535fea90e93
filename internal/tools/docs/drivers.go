package main

import (
	"context"
	"fmt"
	"maps"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"

	"ironroot/initramfs"
	"ironroot/initramfs/debian"
	"ironroot/initramfs/firmware"
	"ironroot/initramfs/modules"
	"ironroot/uinit/kmod"
)

// driver is a driver of PCI adapters in images.
type driver struct {
	name     string
	kind     string   // of the adapters
	ids      int      // number of PCI IDs
	firmware []string // names of the files in images that it requests
}

// driverKind is a kind of adapters.
type driverKind struct {
	name        string
	groups      []string // of modules, with the drivers
	directories []string // of the drivers in the kernel's tree
}

// driverKinds are the kinds of adapters whose drivers images must contain.
var driverKinds = []driverKind{
	{"Ethernet", []string{"server"}, []string{"drivers/net/ethernet/"}},
	{"storage", []string{"server"}, []string{
		"drivers/ata/", "drivers/block/", "drivers/message/fusion/", "drivers/mmc/host/", "drivers/nvme/",
		"drivers/scsi/",
	}},
	{"InfiniBand", []string{"server", "infiniband"}, []string{"drivers/infiniband/hw/"}},
}

// has reports whether a module, by its path in the kernel's tree, is a driver of the kind.
func (k driverKind) has(tree string) bool {
	return slices.ContainsFunc(k.directories, func(d string) bool { return strings.HasPrefix(tree, d) })
}

// legacyDriver is a driver of old adapters: its path in the kernel's tree as a pattern, and what it is for.
type legacyDriver struct{ pattern, reason string }

// legacyDrivers are the drivers of adapters that images lack on purpose. The years are approximate.
var legacyDrivers = []legacyDriver{
	{"drivers/ata/pata_efar", "IDE of chipsets with 32-bit processors, 1999"},
	{"drivers/ata/pata_mpiix", "IDE of laptops with 32-bit processors, 1996"},
	{"drivers/ata/pata_ninja32", "CardBus adapters"},
	{"drivers/ata/pata_ns874*", "IDE of 32-bit machines, 1995"},
	{"drivers/ata/pata_oldpiix", "IDE of chipsets with 32-bit processors, 1995"},
	{"drivers/ata/pata_piccolo", "IDE of laptops with 32-bit processors, 2003"},
	{"drivers/ata/pata_rdc", "IDE of embedded 32-bit processors"},
	{"drivers/ata/pata_rz1000", "IDE of 32-bit machines, 1995"},
	{"drivers/ata/pata_sch", "IDE of chipsets for small mobile devices, 2008"},
	{"drivers/ata/pata_triflex", "IDE of 32-bit servers, 1997"},
	{"drivers/infiniband/hw/hns/*", "RDMA of Ethernet adapters, whose interfaces hns3 makes; no IP over InfiniBand"},
	{"drivers/infiniband/hw/mthca/*", "InfiniHost, 2002 to 2006"},
	{"drivers/mmc/host/toshsd", "card readers of laptops"},
	{"drivers/mmc/host/via-sdmmc", "card readers of laptops"},
	{"drivers/net/ethernet/3com/*", "3Com, Fast Ethernet, 1995 to 2002"},
	{"drivers/net/ethernet/8390/*", "NE2000, 1990 to 2000"},
	{"drivers/net/ethernet/adaptec/*", "Starfire, Fast Ethernet, 1998"},
	{"drivers/net/ethernet/alteon/*", "AceNIC, 1998"},
	{"drivers/net/ethernet/chelsio/cxgb/*", "Chelsio T1 and T2, 2005"},
	{"drivers/net/ethernet/dec/tulip/*", "DECchip 21x4x and copies, Fast Ethernet, 1994 to 2003"},
	{"drivers/net/ethernet/dlink/*", "D-Link, 2000 to 2003"},
	{"drivers/net/ethernet/micrel/*", "Micrel, Fast Ethernet of embedded boards, 2006"},
	{"drivers/net/ethernet/natsemi/*", "National Semiconductor, 1999 to 2002"},
	{"drivers/net/ethernet/neterion/*", "Neterion Xframe, PCI-X, 2005"},
	{"drivers/net/ethernet/packetengines/*", "Packet Engines, 1998"},
	{"drivers/net/ethernet/rdc/*", "Fast Ethernet of embedded 32-bit processors"},
	{"drivers/net/ethernet/silan/*", "Silan, Fast Ethernet, 2002"},
	{"drivers/net/ethernet/sis/*", "SiS chipsets, 1999 to 2005"},
	{"drivers/net/ethernet/smsc/*", "SMSC, Fast Ethernet, 1998 to 2007"},
	{"drivers/net/ethernet/sun/cassini", "Sun Cassini, 2002"},
	{"drivers/net/ethernet/sun/sungem", "Sun GEM and Apple PowerPC, 2000 to 2005"},
	{"drivers/net/ethernet/sun/sunhme", "Sun Happy Meal, 1998"},
	{"drivers/net/ethernet/via/*", "VIA Rhine and Velocity, 1998 to 2004"},
	{"drivers/scsi/BusLogic", "parallel SCSI, 1992 to 1997"},
	{"drivers/scsi/a100u2w", "parallel SCSI, 1998"},
	{"drivers/scsi/aic7xxx/*", "parallel SCSI, 1993 to 2007"},
	{"drivers/scsi/aic94xx/*", "first SAS adapters with PCI-X, 2005; their firmware is not redistributable"},
	{"drivers/scsi/am53c974", "parallel SCSI, 1994"},
	{"drivers/scsi/dc395x", "parallel SCSI, 1998"},
	{"drivers/scsi/dmx3191d", "parallel SCSI, 1996"},
	{"drivers/scsi/initio", "parallel SCSI, 1996"},
	{"drivers/scsi/qla1280", "parallel SCSI, 1996 to 2002"},
	{"drivers/scsi/sym53c8xx_2/*", "parallel SCSI, 1995 to 2003"},
	{"drivers/scsi/wd719x", "parallel SCSI, 1995"},
}

// legacyPattern returns the pattern of legacyDrivers that matches a module, "" if none does.
func legacyPattern(tree string) string {
	for _, l := range legacyDrivers {
		if matched, err := path.Match(l.pattern, tree); err == nil && matched {
			return l.pattern
		}
	}
	return ""
}

// pciIDs returns the number of PCI IDs that a module is for.
func pciIDs(m *kmod.Module) int {
	count := 0
	for _, alias := range m.Aliases {
		if strings.HasPrefix(alias, "pci:") {
			count++
		}
	}
	return count
}

// listDrivers returns the drivers of PCI adapters in images of Debian's kernel, by kind and path.
func listDrivers(ctx context.Context, arch string) ([]driver, error) {
	files, err := debianModules(ctx, arch)
	if err != nil {
		return nil, err
	}
	var drivers []driver
	for _, kind := range driverKinds {
		selection, err := modules.Select(kind.groups)
		if err != nil {
			return nil, err
		}
		for _, f := range files {
			ids := pciIDs(f.Info)
			if ids == 0 || !kind.has(f.Tree) || !selection.Has(f.Tree) {
				continue
			}
			names := slices.DeleteFunc(firmware.Requests(f.Info.Name, f.Info.Firmware), firmware.Omitted)
			drivers = append(drivers, driver{f.Info.Name, kind.name, ids, names})
		}
	}
	return drivers, nil
}

// debianModules returns the modules of Debian's kernel, by path.
func debianModules(ctx context.Context, arch string) ([]*initramfs.Module, error) {
	cache, err := os.UserCacheDir()
	if err != nil {
		return nil, err
	}
	cache = filepath.Join(cache, "ironroot")
	archive, err := debian.Open(debian.Options{CacheDir: cache})
	if err != nil {
		return nil, err
	}
	kernel, err := initramfs.FetchKernel(ctx, archive, cache, "linux-image-"+arch+":"+arch, func(string, ...any) {})
	if err != nil {
		return nil, err
	}
	return initramfs.ListModules(ctx, kernel.Modules)
}

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
	all, err := listDrivers(context.Background(), "amd64")
	if err != nil {
		return "", err
	}
	tested := maps.Clone(emulated)
	var text strings.Builder
	text.WriteString("| Driver | PCI IDs | Firmware | Tested on |\n|---|---|---|---|\n")
	for _, d := range all {
		if slices.Contains(arguments, d.kind) {
			fmt.Fprintf(&text, "| `%s` | %d | %s | %s |\n", d.name, d.ids, files(d.firmware), tested[d.name])
		}
		delete(tested, d.name)
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
	for _, l := range legacyDrivers {
		fmt.Fprintf(&text, "| `%s` | %s |\n", l.pattern, l.reason)
	}
	return text.String(), nil
}
