package block

import (
	"cmp"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	"ironroot/storage/sysfs"
)

var hctlPattern = regexp.MustCompile(`^\d+:\d+:\d+:\d+$`)

// attributes reads the attributes that identify a device.
type attributes struct {
	s sysfs.Root
	// err is the first error of reading an attribute, nil if each was read or does not exist.
	err error
}

// content returns the content of an attribute, nil if there is none or it could not be read.
func (a *attributes) content(file string) []byte {
	data, err := a.s.Files.Read(file)
	if err == nil {
		return data
	}
	if !sysfs.IsAbsent(err) {
		a.fail(err)
	}
	return nil
}

// fail keeps the first error.
func (a *attributes) fail(err error) { a.err = cmp.Or(a.err, err) }

// names returns the sorted names in a directory, nil if there is none or it could not be read.
func (a *attributes) names(dir string) []string {
	entries, err := os.ReadDir(dir)
	if err != nil && !sysfs.IsAbsent(err) {
		a.fail(err)
	}
	return fileNames(entries)
}

// exists reports whether there is a file. If that is not known, it returns false.
func (a *attributes) exists(file string) bool {
	_, err := os.Stat(file)
	if err != nil && !sysfs.IsAbsent(err) {
		a.fail(err)
	}
	return err == nil
}

func (a *attributes) text(file string) string { return trimText(a.content(file)) }

// identify sets the fields that identify the device to the values of udev and lsblk.
func identify(s sysfs.Root, d *Device) {
	a := &attributes{s: s}
	connection := &attributes{s: s} // how the device is connected
	defer func() { d.Unread, d.NetworkUnread = a.err, connection.err }()
	dir := s.Sys("class/block", d.Name)
	device := filepath.Join(dir, "device")
	real, err := filepath.EvalSymlinks(device)
	if err != nil {
		if !sysfs.IsAbsent(err) {
			connection.fail(err)
		}
		real = ""
	}
	d.Model = strings.Join(strings.Fields(a.text(filepath.Join(device, "model"))), " ")
	d.Vendor = a.text(filepath.Join(device, "vendor"))
	d.HCTL = hctl(device, real)
	d.Transport = transportOf(connection, d, real)
	d.Network = networkOf(connection, d)
	switch {
	case strings.HasPrefix(d.Name, "nvme"):
		identifyNVMe(a, d, dir, device)
	case strings.HasPrefix(d.Name, "vd"):
		d.Serial = a.text(filepath.Join(dir, "serial"))
		addUnique(&d.Serials, d.Serial)
	case d.Type == "mpath":
		identifyMultipath(a, d)
	case d.HCTL != "":
		identifySCSI(a, d, device, real)
	default:
		d.Serial = a.text(filepath.Join(device, "serial"))
		addUnique(&d.Serials, d.Serial)
	}
	if paths := byPath(s, d, real); len(paths) > 0 {
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

func identifyNVMe(a *attributes, d *Device, dir, device string) {
	d.Serial = a.text(filepath.Join(device, "serial"))
	d.NSID = a.text(filepath.Join(dir, "nsid"))
	addUnique(&d.Serials, d.Serial)
	if d.Serial != "" && d.Model != "" {
		name := underscored(d.Model) + "_" + underscored(d.Serial)
		addUnique(&d.Serials, name)
		if d.NSID != "" { // ID_SERIAL of udev, which also has the names without it
			addUnique(&d.Serials, name+"_"+d.NSID)
		}
	}
	d.WWN = a.text(filepath.Join(dir, "wwid"))
	if d.WWN == "" {
		d.WWN = a.text(filepath.Join(device, "wwid"))
	}
	addUnique(&d.WWNs, d.WWN)
}

// identifySCSI handles SCSI and SAS disks, SATA disks behind libata, and USB disks.
func identifySCSI(a *attributes, d *Device, device, real string) {
	serial := vpdSerial(a.content(filepath.Join(device, "vpd_pg80")))
	identifiers := a.content(filepath.Join(device, "vpd_pg83"))
	d.WWID = unitID(a, device, identifiers, serial)
	naa := vpdNAA(identifiers)
	if naa == "" {
		// The kernel's result from page 0x83: "naa.5000c500a1b2c3d4", or "t10.…" and "eui.…", which are no NAA.
		naa, _ = strings.CutPrefix(a.text(filepath.Join(device, "wwid")), "naa.")
		if !isHex(naa) {
			naa = ""
		}
	}
	vendorID := vpdVendorSpecific(identifiers)
	ata, isATA := parseATAInformation(a.content(filepath.Join(device, "vpd_pg89")))
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
		serial, vendorID = cmp.Or(usbSerial(a, real), serial), ""
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
func unitID(a *attributes, device string, identifiers []byte, serial string) string {
	if len(identifiers) > 0 {
		return vpdUnitID(identifiers, serial)
	}
	id, _ := scsiName([]byte(a.text(filepath.Join(device, "wwid"))))
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

// identifyMultipath sets the identity from the map's UUID, which is "mpath-3" and the NAA identifier, and the other
// fields from the first path below the map. ByPaths contains the names of all paths.
func identifyMultipath(a *attributes, d *Device) {
	d.WWID = strings.TrimPrefix(a.text(a.s.Sys("class/block", d.Name, "dm/uuid")), "mpath-")
	addUnique(&d.Serials, d.WWID)
	if naa, ok := strings.CutPrefix(d.WWID, "3"); ok && isHex(naa) {
		d.setNAA(naa)
	}
	first := true
	for _, member := range names(a.s.Sys("class/block", d.Name, "slaves")) {
		path, err := Find(a.s, member)
		if err != nil {
			d.Components = append(d.Components, Device{Name: member, Path: nodePath(member)})
			continue
		}
		d.Components = append(d.Components, path)
		a.err = cmp.Or(a.err, path.Unread)
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

// transportOf returns lsblk's name of the bus, "" if it is unknown.
func transportOf(a *attributes, d *Device, real string) string {
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
	case a.exists(a.s.Sys("class/fc_host", host)):
		if strings.Contains(a.text(a.s.Sys("class/fc_host", host, "symbolic_name")), " over ") {
			return "fcoe"
		}
		return "fc"
	case a.exists(a.s.Sys("class/sas_host", host)), strings.Contains(real, "/end_device-"):
		return "sas"
	case a.exists(a.s.Sys("class/iscsi_host", host)), strings.Contains(real, "/session"):
		return "iscsi"
	case strings.Contains(real, "/usb"):
		return "usb"
	case a.exists(a.s.Sys("class/spi_host", host)):
		return "spi"
	}
	driver := a.text(a.s.Sys("class/scsi_host", host, "proc_name"))
	switch {
	case strings.HasPrefix(driver, "ahci"), strings.HasPrefix(driver, "sata"):
		return "sata"
	case strings.Contains(driver, "ata"):
		return "ata"
	}
	return ""
}

// usbSerial returns the serial number in the descriptor of the USB device above the disk.
func usbSerial(a *attributes, real string) string {
	for dir := real; len(dir) > 1; dir = filepath.Dir(dir) {
		if exists(filepath.Join(dir, "idVendor")) {
			return a.text(filepath.Join(dir, "serial"))
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

// readFile reads a sysfs attribute. It returns nil if there is none or it cannot be read: some attributes return an
// error or hang while the hardware sleeps.
func readFile(s sysfs.Root, file string) []byte {
	data, err := s.Files.Read(file)
	if err != nil {
		return nil
	}
	return data
}
