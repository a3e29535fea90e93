package block

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"ironroot/storage/sysfs"
)

var (
	pciPattern    = regexp.MustCompile(`^[0-9a-f]{4,}:[0-9a-f]{2}:[0-9a-f]{2}\.[0-7]$`)
	pciRoot       = regexp.MustCompile(`^pci[0-9a-f]{4,}:[0-9a-f]{2}$`)
	ataPattern    = regexp.MustCompile(`/(ata\d+)/host\d+/`)
	usbPattern    = regexp.MustCompile(`^(.*/usb\d+)/.*/(\d+)-([0-9.]+):(\d+\.\d+)/host(\d+)/`)
	hostPattern   = regexp.MustCompile(`^(.*)/host(\d+)(?:/|$)`)
	sasPattern    = regexp.MustCompile(`/([^/]+)/(port-[0-9:]+)/(end_device-[0-9:]+)/`)
	targetPattern = regexp.MustCompile(`/rport-[^/]+/(target[0-9:]+)/`)
	iscsiPattern  = regexp.MustCompile(`/session(\d+)/`)
	nvmePattern   = regexp.MustCompile(`^(nvme\d+)n(\d+)$`)
	xenPattern    = regexp.MustCompile(`/(vbd-\d+)$`)
	vmbusPattern  = regexp.MustCompile(`^(.*/(?:vmbus_|VMBUS).*)/host\d+/`)
	// aboveBus matches the devices that end a sequence of platform or ACPI devices: those with a bus of their own,
	// including a device on Hyper-V's VMBus.
	aboveBus = regexp.MustCompile(`^((ata|host|virtio|nvme|usb)\d*|mmc_host|vmbus_[0-9_]+|[0-9a-f]{8}-[0-9a-f-]{27})$`)
)

const (
	byPathDir = LinkDir + "by-path/"
	acpiRoot  = "LNXSYSTM:00" // the top of the ACPI devices
)

// byPath returns the names below /dev/disk/by-path that udev's path_id creates for the device, the preferred one
// first. It returns none for unknown buses.
func byPath(s sysfs.Root, d *Device, real string) []string {
	id := strings.Split(d.HCTL, ":")
	if d.Transport == "iscsi" && len(id) == 4 {
		return iscsiPath(s, id[3], real) // the name does not depend on the network adapter
	}
	if m := nvmePattern.FindStringSubmatch(d.Name); m != nil {
		return nvmePath(s, d, m[1], m[2], real)
	}
	if m := xenPattern.FindStringSubmatch(real); m != nil {
		// udev computes this name, but creates the link only with an extra rule, as in Amazon Linux.
		return []string{byPathDir + "xen-" + m[1]}
	}
	if d.Transport == "mmc" {
		return mmcPath(real)
	}
	prefix := busPath(real)
	if prefix == "" {
		return nil
	}
	if d.Transport == "virtio" {
		return []string{byPathDir + prefix, byPathDir + "virtio-" + prefix}
	}
	if len(id) != 4 {
		return nil
	}
	prefix = byPathDir + prefix
	if m := vmbusPattern.FindStringSubmatch(real); m != nil {
		return vmbusPath(s, prefix, lunName(id[3]), m[1])
	}
	switch d.Transport {
	case "sata", "ata":
		m := ataPattern.FindStringSubmatch(real)
		if m == nil {
			return nil
		}
		port := readText(s, s.Sys("class/ata_port", m[1], "port_no"))
		if port == "" {
			return nil
		}
		// Without a port multiplier the target is 0, and udev also creates the name without it.
		short := prefix + "-ata-" + port
		return []string{short, short + "." + id[2]}
	case "usb":
		return usbPath(s, prefix, id, real)
	case "sas":
		return sasPath(s, prefix, lunName(id[3]), real)
	case "fc":
		m := targetPattern.FindStringSubmatch(real)
		if m == nil {
			return nil
		}
		if port := readText(s, s.Sys("class/fc_transport", m[1], "port_name")); port != "" {
			return []string{prefix + "-fc-" + port + "-" + lunName(id[3])}
		}
	case "", "spi":
		return []string{prefix + "-scsi-" + strconv.Itoa(hostOffset(real)) + ":" + strings.Join(id[1:], ":")}
	}
	return nil
}

// mmcPath returns the name of an eMMC or a card by its host controller if that is a platform device. udev creates no
// name for controllers on the PCI bus: they may have several slots, which the kernel numbers in the order of their
// detection.
func mmcPath(real string) []string {
	controller, _, found := strings.Cut(real, "/mmc_host/")
	bus, err := os.Readlink(filepath.Join(controller, "subsystem"))
	if !found || err != nil || filepath.Base(bus) != "platform" || strings.Contains(controller, "/usb") {
		return nil
	}
	dir, name := filepath.Split(controller)
	name = "platform-" + name
	if prefix := busPath(dir); prefix != "" {
		name = prefix + "-" + name
	}
	return []string{byPathDir + name}
}

// vmbusPath returns the name of a Hyper-V disk by the identifier of its controller, a GUID in braces. It applies to
// machines of the first generation, whose bus is called VMBUS. On machines of the second generation the bus is called
// MSFT1000, and udev names disks as on any SCSI host.
func vmbusPath(s sysfs.Root, prefix, lun, controller string) []string {
	id := readText(s, filepath.Join(controller, "device_id"))
	guid, opened := strings.CutPrefix(id, "{")
	guid, closed := strings.CutSuffix(guid, "}")
	if !opened || !closed {
		return nil
	}
	return []string{prefix + "-vmbus-" + strings.ReplaceAll(guid, "-", "") + "-" + lun}
}

// lunName formats a unit number as udev does: in the form of SAM-5, 4.7 from 256.
func lunName(text string) string {
	lun, err := strconv.ParseUint(text, 10, 64)
	if err != nil || lun < 256 {
		return "lun-" + text
	}
	return fmt.Sprintf("lun-0x%04x%04x00000000", lun&0xffff, lun>>16&0xffff)
}

// nvmePath names a namespace by its controller. The head of a multipath device is not below a bus. It has the number
// of a controller, whose bus is used.
func nvmePath(s sysfs.Root, d *Device, controller, number, real string) []string {
	if !slices.Contains(strings.Split(real, "/"), controller) {
		var err error
		if real, err = filepath.EvalSymlinks(s.Sys("class/nvme", controller)); err != nil {
			return nil
		}
	}
	prefix := busPath(real)
	if prefix == "" {
		return nil
	}
	if nsid := readText(s, s.Sys("class/block", d.Name, "nsid")); nsid != "" {
		number = nsid
	}
	return []string{byPathDir + prefix + "-nvme-" + number}
}

// usbPath names a USB disk by its ports. The newer name includes the revision of the root hub, because the ports of
// the USB 2 and the USB 3 hub of one controller have the same numbers.
func usbPath(s sysfs.Root, prefix string, id []string, real string) []string {
	m := usbPattern.FindStringSubmatch(real)
	if m == nil {
		return nil
	}
	rest := "-0:" + m[3] + ":" + m[4] + "-scsi-0:" + strings.Join(id[1:], ":")
	list := []string{prefix + "-usb" + rest}
	if revision := usbRevision(s, m[1]); revision != "" {
		list = append(list, prefix+"-usbv"+revision+rest)
	}
	return list
}

// usbRevision returns the revision of a root hub by its protocol (USB 2.0, 11.23.1; USB 3.2, 10.15.1) and speed.
func usbRevision(s sysfs.Root, hub string) string {
	switch readText(s, filepath.Join(hub, "bDeviceProtocol")) {
	case "00":
		if readText(s, filepath.Join(hub, "speed")) == "480" {
			return "2"
		}
		return "1"
	case "01", "02":
		return "2"
	case "03":
		return "3"
	}
	return ""
}

// sasPath names a SAS disk by the phy of the adapter or expander that it is connected to. If it is connected to
// several phys, it is named by its own address.
func sasPath(s sysfs.Root, prefix, lun, real string) []string {
	m := sasPattern.FindStringSubmatch(real)
	if m == nil {
		return nil
	}
	device := s.Sys("class/sas_device", m[3])
	switch phys := readText(s, s.Sys("class/sas_port", m[2], "num_phys")); phys {
	case "":
		return nil
	case "1":
	default:
		if address := readText(s, filepath.Join(device, "sas_address")); address != "" {
			return []string{prefix + "-sas-" + address + "-" + lun}
		}
		return nil
	}
	phy := readText(s, filepath.Join(device, "phy_identifier"))
	if phy == "" {
		return nil
	}
	name := prefix + "-sas-"
	if expander := readText(s, s.Sys("class/sas_device", m[1], "sas_address")); expander != "" {
		name += "exp" + expander + "-"
	}
	return []string{name + "phy" + phy + "-" + lun}
}

// iscsiPath names a disk by its portal, target and unit.
func iscsiPath(s sysfs.Root, lun, real string) []string {
	m := iscsiPattern.FindStringSubmatch(real)
	if m == nil {
		return nil
	}
	connection := s.Sys("class/iscsi_connection", "connection"+m[1]+":0")
	address := readText(s, filepath.Join(connection, "persistent_address"))
	port := readText(s, filepath.Join(connection, "persistent_port"))
	target := readText(s, s.Sys("class/iscsi_session", "session"+m[1], "targetname"))
	if address == "" || port == "" || target == "" {
		return nil
	}
	return []string{byPathDir + "ip-" + address + ":" + port + "-iscsi-" + target + "-" + lunName(lun)}
}

// busPath returns the name of the buses above a device: "pci-0000:00:1f.2"; "pci-0000:64:00.5-pci-10002:01:00.0"
// behind a controller with a PCI domain of its own; and without a PCI bus "platform-APMC0D33:00" or "acpi-VMBUS:00",
// after the lowest platform or ACPI device above the disk.
func busPath(real string) string {
	var buses []string
	address := ""        // of the PCI function nearest to the device in this domain
	kind, name := "", "" // "platform" or "acpi", and the lowest device of that kind so far
	for part := range strings.SplitSeq(real, "/") {
		switch {
		case pciPattern.MatchString(part):
			address, kind = part, ""
		case part == "platform" && address == "":
			kind, name = "platform", ""
		case part == acpiRoot && address == "":
			kind, name = "acpi", ""
		case pciRoot.MatchString(part), aboveBus.MatchString(part):
			if kind != "" && name != "" {
				buses = append(buses, kind+"-"+name)
			} else if address != "" && pciRoot.MatchString(part) {
				buses, address = append(buses, "pci-"+address), ""
			}
			kind = ""
		case kind != "":
			name = part
		}
	}
	if address != "" {
		buses = append(buses, "pci-"+address)
	}
	return strings.Join(buses, "-")
}

// hostOffset returns the number of a SCSI host among the hosts of its adapter, from 0. The kernel's numbers depend on
// the order of detection.
func hostOffset(real string) int {
	m := hostPattern.FindStringSubmatch(real)
	if m == nil {
		return 0
	}
	own, _ := strconv.Atoi(m[2])
	lowest := own
	for _, name := range names(m[1]) {
		if n, err := strconv.Atoi(strings.TrimPrefix(name, "host")); err == nil && strings.HasPrefix(name, "host") {
			lowest = min(lowest, n)
		}
	}
	return own - lowest
}
