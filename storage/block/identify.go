package block

import (
	"cmp"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
)

var hctlPattern = regexp.MustCompile(`^\d+:\d+:\d+:\d+$`)

// identify fills in who the device is. The values are those udev and lsblk would give.
func (s System) identify(d *Device) {
	dir := s.Sys("class/block", d.Name)
	device := filepath.Join(dir, "device")
	real, err := filepath.EvalSymlinks(device)
	if err != nil {
		real = ""
	}
	d.Model = strings.Join(strings.Fields(s.text(filepath.Join(device, "model"))), " ")
	d.Vendor = s.text(filepath.Join(device, "vendor"))
	d.HCTL = hctl(device, real)
	d.Transport = s.transport(d, real)
	switch {
	case strings.HasPrefix(d.Name, "nvme"):
		s.identifyNVMe(d, dir, device)
	case strings.HasPrefix(d.Name, "vd"):
		d.Serial = s.text(filepath.Join(dir, "serial"))
		addUnique(&d.Serials, d.Serial)
	case d.Type == "mpath":
		s.identifyMultipath(d)
	case d.HCTL != "":
		s.identifySCSI(d, device, real)
	default:
		d.Serial = s.text(filepath.Join(device, "serial"))
		addUnique(&d.Serials, d.Serial)
	}
	if paths := s.byPath(d, real); len(paths) > 0 {
		d.ByPath, d.ByPaths = paths[0], paths
	}
}

func hctl(device, real string) string {
	if list := names(filepath.Join(device, "scsi_device")); len(list) > 0 {
		return list[0]
	}
	if base := filepath.Base(real); hctlPattern.MatchString(base) {
		return base
	}
	return ""
}

func (s System) identifyNVMe(d *Device, dir, device string) {
	d.Serial = s.text(filepath.Join(device, "serial"))
	addUnique(&d.Serials, d.Serial)
	if d.Serial != "" && d.Model != "" {
		addUnique(&d.Serials, underscored(d.Model)+"_"+underscored(d.Serial))
	}
	d.WWN = s.text(filepath.Join(dir, "wwid"))
	if d.WWN == "" {
		d.WWN = s.text(filepath.Join(device, "wwid"))
	}
	addUnique(&d.WWNs, d.WWN)
}

// identifySCSI covers SAS, SATA behind libata, and USB disks.
func (s System) identifySCSI(d *Device, device, real string) {
	serial := vpdSerial(s.contents(filepath.Join(device, "vpd_pg80")))
	d.WWID = s.unitID(device, serial)
	naa := vpdNAA(s.contents(filepath.Join(device, "vpd_pg83")))
	if naa == "" {
		// The kernel's own reading of page 0x83: "naa.5000c500a1b2c3d4", or "t10.…" and "eui.…", which are no NAA.
		naa, _ = strings.CutPrefix(s.text(filepath.Join(device, "wwid")), "naa.")
		if !isHex(naa) {
			naa = ""
		}
	}
	vendorID := vpdVendorSpecific(s.contents(filepath.Join(device, "vpd_pg83")))
	ata, isATA := parseATAInformation(s.contents(filepath.Join(device, "vpd_pg89")))
	if isATA {
		// INQUIRY truncates an ATA disk's model to 16 characters; the IDENTIFY data have all 40.
		d.Model = ata.Model
		if ata.Serial != "" {
			serial = ata.Serial
		}
		if ata.WWN != "" {
			naa, d.WWID = ata.WWN, "3"+ata.WWN
		}
	}
	if d.Transport == "usb" {
		serial, vendorID = cmp.Or(s.usbSerial(real), serial), ""
	}
	d.Serial = serial
	addUnique(&d.Serials, serial)
	switch {
	case d.Transport == "usb": // udev names a USB disk after its descriptor only
	case isATA && serial != "":
		addUnique(&d.Serials, underscored(d.Model)+"_"+underscored(serial))
	case naa != "":
		addUnique(&d.Serials, naa)
		addUnique(&d.Serials, "3"+naa) // as printed by scsi_id: with the designator type 3
	case vendorID != "": // a QEMU disk without a world wide name, and possibly without a serial number
		addUnique(&d.Serials, vendorID)
		addUnique(&d.Serials, underscored("0"+d.Vendor+" "+d.Model+" "+vendorID))
	}
	d.Serial = cmp.Or(d.Serial, naa, vendorID)
	d.setNAA(naa)
}

// unitID returns the unique identifier of a SCSI disk. If the kernel does not expose page 0x83, it uses the identifier
// that the kernel read from that page: "naa.5000c500a1b2c3d4" or "eui.0025385b71b00001".
func (s System) unitID(device, serial string) string {
	if page := s.contents(filepath.Join(device, "vpd_pg83")); len(page) > 0 {
		return vpdUnitID(page, serial)
	}
	id, _ := scsiName([]byte(s.text(filepath.Join(device, "wwid"))))
	return id
}

// setNAA sets the world wide names from an NAA identifier of 16 or 32 hex digits. The second half of 32 digits is the
// vendor's extension.
func (d *Device) setNAA(naa string) {
	if naa == "" {
		return
	}
	short := naa
	if len(naa) > 16 {
		short = naa[:16]
		d.WWNVendorExtension = "0x" + naa[16:]
	}
	d.WWNWithExtension = "0x" + naa
	d.WWN = d.WWNWithExtension // as shown by lsblk
	addUnique(&d.WWNs, d.WWN)
	addUnique(&d.WWNs, "0x"+short)
}

// identifyMultipath takes the identity from the map's UUID, which is "mpath-3" and the NAA identifier, and the rest
// from the first path below the map. By the places of all its paths it is known too.
func (s System) identifyMultipath(d *Device) {
	d.WWID = strings.TrimPrefix(s.text(s.Sys("class/block", d.Name, "dm/uuid")), "mpath-")
	addUnique(&d.Serials, d.WWID)
	if naa, ok := strings.CutPrefix(d.WWID, "3"); ok && isHex(naa) {
		d.setNAA(naa)
	}
	first := true
	for _, member := range names(s.Sys("class/block", d.Name, "slaves")) {
		path, err := s.Device(member)
		if err != nil {
			continue
		}
		for _, name := range path.ByPaths {
			addUnique(&d.ByPaths, name)
		}
		if first {
			d.Model, d.Vendor, d.Serial, d.ByPath = path.Model, path.Vendor, path.Serial, path.ByPath
			addUnique(&d.Serials, path.Serial)
		}
		first = false
	}
}

// transport names the bus with lsblk's words.
func (s System) transport(d *Device, real string) string {
	switch {
	case strings.HasPrefix(d.Name, "nvme"):
		return "nvme"
	case strings.HasPrefix(d.Name, "vd"):
		return "virtio"
	case strings.HasPrefix(d.Name, "mmcblk"):
		return "mmc"
	case d.HCTL == "":
		return ""
	}
	host, _, _ := strings.Cut(d.HCTL, ":")
	host = "host" + host
	switch {
	case exists(s.Sys("class/fc_host", host)):
		if strings.Contains(s.text(s.Sys("class/fc_host", host, "symbolic_name")), " over ") {
			return "fcoe"
		}
		return "fc"
	case exists(s.Sys("class/sas_host", host)), strings.Contains(real, "/end_device-"):
		return "sas"
	case exists(s.Sys("class/iscsi_host", host)), strings.Contains(real, "/session"):
		return "iscsi"
	case strings.Contains(real, "/usb"):
		return "usb"
	case exists(s.Sys("class/spi_host", host)):
		return "spi"
	}
	driver := s.text(s.Sys("class/scsi_host", host, "proc_name"))
	switch {
	case strings.HasPrefix(driver, "ahci"), strings.HasPrefix(driver, "sata"):
		return "sata"
	case strings.Contains(driver, "ata"):
		return "ata"
	}
	return ""
}

// usbSerial finds the serial number in the descriptor of the USB device above the disk.
func (s System) usbSerial(real string) string {
	for dir := real; len(dir) > 1; dir = filepath.Dir(dir) {
		if exists(filepath.Join(dir, "idVendor")) {
			return s.text(filepath.Join(dir, "serial"))
		}
	}
	return ""
}

// underscored formats text as udev does in an ID: every run of white space becomes one underscore.
func underscored(s string) string { return strings.Join(strings.Fields(s), "_") }

func addUnique(list *[]string, value string) {
	if value != "" && !slices.Contains(*list, value) {
		*list = append(*list, value)
	}
}

// contents reads a sysfs attribute; nil where there is none. Some answer with an error while the hardware sleeps, or hang,
// which counts as not known.
func (s System) contents(file string) []byte {
	data, err := s.Files.Read(file)
	if err != nil {
		return nil
	}
	return data
}
