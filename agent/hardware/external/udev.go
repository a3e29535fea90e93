package external

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"ironroot/storage/block"
	"ironroot/storage/sysfs"
)

const (
	linkDir  = "/dev/disk"      // of links to disks
	udevData = "/run/udev/data" // of what udev knows of a device, which libudev reads
)

// udev holds the data that programs of a distribution expect udev to have recorded of the machine's disks and
// partitions.
type udev []udevDevice

// udevDevice is a disk or a partition.
type udevDevice struct {
	name       string   // kernel name
	number     string   // MAJOR:MINOR
	links      []string // below /dev, without "/dev/"
	properties []string // NAME=VALUE
}

// udevDevices describes the disks and their partitions. Those that cannot be read are omitted: a program finds them by
// their kernel names.
func udevDevices(ctx context.Context, s sysfs.Root) udev {
	var all udev
	disks, _ := block.Disks(ctx, s) // with an error come those that could be read
	for _, d := range disks {
		links, properties := linksOf(d), slices.Clip(propertiesOf(d)) // each append below makes a list of its own
		all = all.add(s, d.Name, links, append(properties, "DEVTYPE=disk"))
		partitions, _ := block.Partitions(ctx, s, d.Name) // with an error there are none
		for _, p := range partitions {
			var below []string
			for _, link := range links {
				below = append(below, fmt.Sprintf("%s-part%d", link, p.Number))
			}
			all = all.add(s, p.Name, below, append(properties, "DEVTYPE=partition"))
		}
	}
	return all
}

func (u udev) add(s sysfs.Root, name string, links, properties []string) udev {
	number, err := os.ReadFile(s.Sys("class/block", name, "dev"))
	if err != nil {
		return u
	}
	return append(u, udevDevice{name, strings.TrimSpace(string(number)), links, properties})
}

// linksOf returns the names by which udev links to a disk.
func linksOf(d block.Device) []string {
	links := d.Links()
	for i, name := range links {
		links[i] = strings.TrimPrefix(name, "/dev/")
	}
	return links
}

// propertiesOf returns udev's properties of a disk.
func propertiesOf(d block.Device) []string {
	var list []string
	for _, p := range [][2]string{
		{"ID_MODEL", block.LinkName(d.Model)},
		{"ID_VENDOR", block.LinkName(d.Vendor)},
		{"ID_SERIAL_SHORT", block.LinkName(d.Serial)},
		{"ID_WWN", d.WWN},
		{"ID_WWN_WITH_EXTENSION", d.WWNWithExtension},
		{"ID_WWN_VENDOR_EXTENSION", d.WWNVendorExtension},
		{"ID_BUS", d.Transport},
		{"ID_PATH", strings.TrimPrefix(d.ByPath, "/dev/disk/by-path/")},
	} {
		if p[1] != "" && !strings.ContainsAny(p[1], "\n\x00") {
			list = append(list, p[0]+"="+p[1])
		}
	}
	return list
}

// write writes the links and udev's data. Their directories are in this mount namespace.
func (u udev) write() error {
	if err := os.MkdirAll(udevData, 0o755); err != nil {
		return err
	}
	for _, d := range u {
		var text strings.Builder
		for _, link := range d.links {
			fmt.Fprintf(&text, "S:%s\n", link)
			name := filepath.Join("/dev", link)
			if err := os.MkdirAll(filepath.Dir(name), 0o755); err != nil {
				return err
			}
			// Two disks can have the same name, as in udev.
			if err := os.Symlink("/dev/"+d.name, name); err != nil && !errors.Is(err, fs.ErrExist) {
				return err
			}
		}
		text.WriteString("I:1\n") // initialised
		for _, p := range d.properties {
			fmt.Fprintf(&text, "E:%s\n", p)
		}
		if err := os.WriteFile(filepath.Join(udevData, "b"+d.number), []byte(text.String()), 0o644); err != nil {
			return err
		}
	}
	return nil
}
