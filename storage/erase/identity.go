package erase

import (
	"fmt"
	"path/filepath"
	"strings"

	"ironroot/storage/block"
	"ironroot/storage/erase/evidence"
	"ironroot/storage/sysfs"
)

// Describe returns the identity of a disk for evidence. Values that cannot be read are empty.
func Describe(sys sysfs.Root, d block.Device) evidence.Disk {
	return evidence.Disk{
		Path: d.Path, Type: d.Type, Transport: d.Transport, Vendor: d.Vendor, Model: d.Model, Serial: d.Serial,
		WWN: d.WWN, Firmware: firmwareRevision(sys, d), Bytes: d.Size, Sector: d.LogicalSector,
		Rotational: d.Rotational, Virtual: virtual(sys, d),
	}
}

// firmwareRevision returns the firmware revision of a disk as the kernel shows it: of ATA drives only the last four
// characters.
func firmwareRevision(sys sysfs.Root, d block.Device) string {
	name := "rev" // of SCSI disks
	switch d.Transport {
	case "nvme":
		name = "firmware_rev"
	case "mmc":
		name = "fwrev"
	}
	return attribute(sys, d, name)
}

// attribute returns an attribute of the device of a disk, "" if it cannot be read.
func attribute(sys sysfs.Root, d block.Device, name string) string {
	data, err := sys.Files.Read(sys.Sys("class/block", d.Name, "device", name))
	if err != nil {
		return ""
	}
	return strings.TrimSpace(string(data))
}

// virtualNames are parts of the vendor and model of disks that RAID controllers, hypervisors and disk arrays present,
// in lower case.
var virtualNames = []string{
	"qemu", "vmware", "vbox", "virtual", "msft", "xen", "amazon", "nvme_card", "persistentdisk", "bhyve", // hypervisors
	"alibaba cloud", "spdk",
	"logical volume", "raid", "perc ", "mr9", "dellboss", "dell boss", " vd", "boot controller", "ns204i",
	"volume",                           // RAID controllers, some of which present an NVMe or AHCI controller
	"lio-org", "iet", "linux", "nvmet", // targets
}

// virtual returns why a device is not known to be one physical drive, "" for a drive. In case of doubt a device is not
// a drive: commands to a virtual disk do not reach the physical media.
func virtual(sys sysfs.Root, d block.Device) string {
	if d.Type != "disk" {
		return fmt.Sprintf("a device of type %q is made of other devices or files", d.Type)
	}
	name := strings.ToLower(d.Vendor + " " + d.Model)
	for _, part := range virtualNames {
		if strings.Contains(name, part) {
			return fmt.Sprintf("vendor %q and model %q are those of a virtual disk", d.Vendor, d.Model)
		}
	}
	switch d.Transport {
	case "sata", "ata", "mmc", "usb", "spi":
		return ""
	case "nvme":
		if found := nvmeTransport(sys, d); found != "pcie" {
			return fmt.Sprintf("the NVMe controller is connected by %q", found)
		}
		return ""
	case "sas":
		real, err := filepath.EvalSymlinks(sys.Sys("class/block", d.Name))
		if err != nil || !strings.Contains(real, "/end_device-") {
			return "the SAS controller presents it, and it is no device of the controller's SAS domain"
		}
		return ""
	case "":
		return "its controller does not tell whether it is a drive or a RAID volume"
	}
	return fmt.Sprintf("a disk connected by %s is one that a server, disk array or hypervisor presents", d.Transport)
}

// nvmeTransport returns the transport of the controller of a namespace. With native multipathing the namespace belongs
// to a subsystem, whose controllers must have the same transport.
func nvmeTransport(sys sysfs.Root, d block.Device) string {
	if transport := attribute(sys, d, "transport"); transport != "" {
		return transport
	}
	files, err := filepath.Glob(sys.Sys("class/block", d.Name, "device", "nvme*", "transport"))
	if err != nil {
		return ""
	}
	found := ""
	for _, file := range files {
		data, err := sys.Files.Read(file)
		transport := strings.TrimSpace(string(data))
		if err != nil || found != "" && transport != found {
			return ""
		}
		found = transport
	}
	return found
}
