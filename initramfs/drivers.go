package initramfs

import (
	"context"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"

	"ironroot/initramfs/debian"
	"ironroot/initramfs/firmware"
	"ironroot/initramfs/modules"
	"ironroot/uinit/kmod"
)

// Driver is a driver of PCI adapters in images.
type Driver struct {
	Name     string
	Kind     string   // of the adapters
	IDs      int      // number of PCI IDs
	Firmware []string // names of the files in images that it requests
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

// LegacyDriver is a driver of old adapters: its path in the kernel's tree as a pattern, and what it is for.
type LegacyDriver struct{ Pattern, Reason string }

// LegacyDrivers are the drivers of adapters that images lack on purpose. The years are approximate.
var LegacyDrivers = []LegacyDriver{
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

// legacyPattern returns the pattern of LegacyDrivers that matches a module, "" if none does.
func legacyPattern(tree string) string {
	for _, l := range LegacyDrivers {
		if matched, err := path.Match(l.Pattern, tree); err == nil && matched {
			return l.Pattern
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

// Drivers returns the drivers of PCI adapters in images of Debian's kernel, by kind and path.
func Drivers(ctx context.Context, arch string) ([]Driver, error) {
	files, err := debianModules(ctx, arch)
	if err != nil {
		return nil, err
	}
	var drivers []Driver
	for _, kind := range driverKinds {
		selection, err := modules.Select(kind.groups)
		if err != nil {
			return nil, err
		}
		for _, f := range files {
			ids := pciIDs(f.info)
			if ids == 0 || !kind.has(f.tree) || !selection.Has(f.tree) {
				continue
			}
			names := slices.DeleteFunc(firmware.Requests(f.info.Name, f.info.Firmware), firmware.Omitted)
			drivers = append(drivers, Driver{f.info.Name, kind.name, ids, names})
		}
	}
	return drivers, nil
}

// debianModules returns the modules of Debian's kernel, by path.
func debianModules(ctx context.Context, arch string) ([]*moduleFile, error) {
	cache, err := os.UserCacheDir()
	if err != nil {
		return nil, err
	}
	cache = filepath.Join(cache, "ironroot")
	archive, err := debian.Open(debian.Options{CacheDir: cache})
	if err != nil {
		return nil, err
	}
	kernel, err := FetchKernel(ctx, archive, cache, "linux-image-"+arch+":"+arch, func(string, ...any) {})
	if err != nil {
		return nil, err
	}
	return listModules(ctx, kernel.Modules)
}
