package block

import (
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
)

var (
	pciPattern     = regexp.MustCompile(`/([0-9a-f]{4,}:[0-9a-f]{2}:[0-9a-f]{2}\.[0-7])(?:/|$)`)
	ataPattern     = regexp.MustCompile(`/(ata\d+)/host\d+/`)
	usbPattern     = regexp.MustCompile(`/(\d+)-([0-9.]+):(\d+\.\d+)/host(\d+)/`)
	hostPattern    = regexp.MustCompile(`^(.*)/host(\d+)(?:/|$)`)
	endPattern     = regexp.MustCompile(`/(end_device-[0-9:]+)/`)
	sasPortPattern = regexp.MustCompile(`/host\d+/port-[0-9:]+/end_device-`)
	nvmePattern    = regexp.MustCompile(`^nvme\d+n(\d+)$`)
)

// byPath computes the names below /dev/disk/by-path that udev's path_id would give the device, the preferred one
// first. Buses not known here have none: better no name than a wrong one.
func (s System) byPath(d *Device, real string) []string {
	pci := pciAddress(real)
	if pci == "" {
		return nil
	}
	prefix := "/dev/disk/by-path/pci-" + pci
	if d.Transport == "virtio" {
		return []string{prefix, "/dev/disk/by-path/virtio-pci-" + pci}
	}
	if m := nvmePattern.FindStringSubmatch(d.Name); m != nil {
		return []string{prefix + "-nvme-" + m[1]}
	}
	id := strings.Split(d.HCTL, ":")
	if len(id) != 4 {
		return nil
	}
	lun := id[3]
	switch d.Transport {
	case "sata", "ata":
		m := ataPattern.FindStringSubmatch(real)
		if m == nil {
			return nil
		}
		port := text(s.Sys("class/ata_port", m[1], "port_no"))
		if port == "" {
			return nil
		}
		// Port multipliers apart, the target is 0 and udev keeps the name without it too.
		short := prefix + "-ata-" + port
		return []string{short, short + "." + id[2]}
	case "usb":
		m := usbPattern.FindStringSubmatch(real)
		if m == nil {
			return nil
		}
		return []string{prefix + "-usb-0:" + m[2] + ":" + m[3] + "-scsi-0:" + strings.Join(id[1:], ":")}
	case "sas":
		return s.sasPath(prefix, lun, real)
	case "", "spi":
		return []string{prefix + "-scsi-" + strconv.Itoa(hostOffset(real)) + ":" + strings.Join(id[1:], ":")}
	}
	return nil
}

// sasPath names a SAS disk by the phy it hangs on when it is wired to the adapter itself, else by its address.
func (s System) sasPath(prefix, lun, real string) []string {
	m := endPattern.FindStringSubmatch(real)
	if m == nil {
		return nil
	}
	device := s.Sys("class/sas_device", m[1])
	address := text(filepath.Join(device, "sas_address"))
	var list []string
	if phy := text(filepath.Join(device, "phy_identifier")); sasPortPattern.MatchString(real) && phy != "" {
		list = append(list, prefix+"-sas-phy"+phy+"-lun-"+lun)
	}
	if address != "" {
		list = append(list, prefix+"-sas-"+address+"-lun-"+lun)
	}
	return list
}

// pciAddress is the address of the PCI function nearest to the device.
func pciAddress(real string) string {
	address := ""
	for rest := real; ; {
		m := pciPattern.FindStringSubmatchIndex(rest)
		if m == nil {
			return address
		}
		address, rest = rest[m[2]:m[3]], rest[m[3]:]
	}
}

// hostOffset numbers the SCSI hosts of one adapter from 0, since the kernel's own numbers depend on the probe order.
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
