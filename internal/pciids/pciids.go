// Package pciids reads and writes names of PCI devices in the format of the database pci.ids
// (https://pci-ids.ucw.cz, pci.ids(5)).
package pciids

import (
	"bufio"
	"cmp"
	"fmt"
	"io"
	"maps"
	"slices"
	"strconv"
	"strings"
)

// File is the path, without a leading slash, of the ramdisk's file with the names of the network cards that its modules
// drive.
const File = "usr/lib/ironroot/pci.ids"

// ID identifies a kind of device.
type ID struct{ Vendor, Device uint16 }

// Names are the names of a vendor and of its device. A name is "" if it is unknown.
type Names struct{ Vendor, Device string }

// Write writes names, sorted by ID.
func Write(w io.Writer, names map[ID]Names) error {
	ids := slices.SortedFunc(maps.Keys(names), func(a, b ID) int {
		return cmp.Or(cmp.Compare(a.Vendor, b.Vendor), cmp.Compare(a.Device, b.Device))
	})
	buffer := bufio.NewWriter(w)
	for i, id := range ids {
		if i == 0 || id.Vendor != ids[i-1].Vendor {
			fmt.Fprintf(buffer, "%04x  %s\n", id.Vendor, names[id].Vendor) //nolint:errcheck // Flush returns the error
		}
		fmt.Fprintf(buffer, "\t%04x  %s\n", id.Device, names[id].Device) //nolint:errcheck // Flush returns the error
	}
	return buffer.Flush()
}

// Find returns the names of the device with an ID. Names that are not listed are "", without an error. Subsystems are
// skipped.
func Find(r io.Reader, id ID) (Names, error) {
	var found Names
	lines := bufio.NewScanner(r)
	inVendor := false // the following lines of devices belong to id.Vendor
	for lines.Scan() {
		line := lines.Text()
		isDevice := strings.HasPrefix(line, "\t")
		number, name, ok := strings.Cut(strings.TrimPrefix(line, "\t"), "  ")
		if !ok || strings.HasPrefix(number, "\t") {
			continue
		}
		value, err := strconv.ParseUint(number, 16, 16)
		switch {
		case err != nil && !isDevice:
			inVendor = false // a comment or the list of classes
		case err != nil:
		case !isDevice:
			if inVendor = uint16(value) == id.Vendor; inVendor {
				found.Vendor = name
			}
		case inVendor && uint16(value) == id.Device:
			found.Device = name
			return found, nil
		}
	}
	return found, lines.Err()
}
