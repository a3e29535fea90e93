package block

import (
	"fmt"
	"slices"
	"strings"
)

// LinkDir is the directory with udev's links to disks and partitions.
const LinkDir = "/dev/disk/"

// Links returns the paths by which udev links to a disk: links in /dev/disk/by-path, and links in /dev/disk/by-id that
// depend on the world wide name and on the serial number (60-persistent-storage.rules).
func (d Device) Links() []string {
	links := slices.Clone(d.ByPaths)
	byID := func(name string) {
		if name = LinkName(name); name != "" {
			links = append(links, LinkDir+"by-id/"+name)
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
		if d.NSID != "" {
			byID("nvme-" + d.Model + "_" + d.Serial + "_" + d.NSID)
		}
	case d.Transport == "sata" || d.Transport == "ata":
		byID("ata-" + d.Model + "_" + d.Serial)
	}
	if d.WWID != "" && d.Transport != "sata" && d.Transport != "ata" {
		byID("scsi-" + d.WWID)
	}
	return links
}

// isLinkRune reports whether udev keeps an ASCII character in the name of a link.
func isLinkRune(r rune) bool {
	return r >= '0' && r <= '9' || r >= 'A' && r <= 'Z' || r >= 'a' && r <= 'z' || strings.ContainsRune("#+-.:=@_", r)
}

// LinkName returns a name as udev writes it in links by ID and in properties: runs of white space, and characters other
// than letters, digits and "#+-.:=@_", become an underscore.
func LinkName(name string) string {
	return strings.Map(func(r rune) rune {
		if isLinkRune(r) {
			return r
		}
		return '_'
	}, strings.Join(strings.Fields(name), "_"))
}

// LinkLabel returns a label as udev writes it in links by label: ASCII characters except letters, digits and "#+-.:=@_"
// become \xNN. Other characters are kept.
func LinkLabel(label string) string {
	var name strings.Builder
	for _, r := range label {
		if r >= 0x80 || isLinkRune(r) {
			name.WriteRune(r)
		} else {
			fmt.Fprintf(&name, `\x%02x`, r)
		}
	}
	return name.String()
}
