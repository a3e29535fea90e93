package block

import (
	"slices"
	"strings"
)

// Links returns the paths by which udev links to a disk: those of /dev/disk/by-path, and those of /dev/disk/by-id that
// depend on the world wide name and on the serial number (60-persistent-storage.rules).
func (d Device) Links() []string {
	links := slices.Clone(d.ByPaths)
	byID := func(name string) {
		if name = LinkName(name); name != "" {
			links = append(links, "/dev/disk/by-id/"+name)
		}
	}
	wwn := d.WWNWithExtension
	if wwn == "" {
		wwn = d.WWN
	}
	switch {
	case wwn == "":
	case d.Transport == "nvme":
		byID("nvme-" + wwn)
	default:
		byID("wwn-" + wwn)
	}
	switch {
	case d.Serial == "":
	case d.Transport == "virtio":
		byID("virtio-" + d.Serial)
	case d.Transport == "nvme":
		byID("nvme-" + d.Model + "_" + d.Serial)
	case d.Transport == "sata" || d.Transport == "ata":
		byID("ata-" + d.Model + "_" + d.Serial)
	}
	if d.WWID != "" && d.Transport != "sata" && d.Transport != "ata" {
		byID("scsi-" + d.WWID)
	}
	return links
}

// LinkName returns a name as udev writes it in links by ID and in properties: runs of white space, and characters other
// than letters, digits and "#+-.:=@_", become an underscore.
func LinkName(name string) string {
	return strings.Map(func(r rune) rune {
		if r >= '0' && r <= '9' || r >= 'A' && r <= 'Z' || r >= 'a' && r <= 'z' || strings.ContainsRune("#+-.:=@_", r) {
			return r
		}
		return '_'
	}, strings.Join(strings.Fields(name), "_"))
}
