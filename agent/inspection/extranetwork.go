package inspection

import (
	"bytes"
	"cmp"
	"errors"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"ironroot/agent/inventory"
	"ironroot/internal/pciids"
)

// networkFacts adds the facts about network interfaces. Cards have the names that hardware-detect gives them, or else
// their ID.
func (i *inspection) networkFacts(f *factList, interfaces []inventory.Interface) {
	database, err := os.ReadFile(filepath.Join(cmp.Or(i.System.Path, "/"), pciids.File))
	if err != nil && !errors.Is(err, os.ErrNotExist) { // an image without modules has none
		i.Log.Warn("names of network cards not read", "err", err)
	}
	for _, n := range interfaces {
		add := func(property, value string) { f.add("network", n.Name, property, value) }
		bus := i.businfo(n)
		add("businfo", bus)
		if strings.HasPrefix(bus, "pci@") {
			names := i.cardNames(database, n)
			add("vendor", cmp.Or(names.Vendor, known(n.Vendor)))
			add("product", cmp.Or(names.Device, known(n.Product)))
		}
		speed, err := strconv.Atoi(i.text(i.System.Sys("class/net", n.Name, "speed"))) // Mbit/s; -1 is unknown
		if err == nil && speed > 0 {
			add("size", strconv.FormatInt(int64(speed)*1e6, 10)) // bit/s
		}
		add("ipv4", known(n.IPv4Address))
		add("link", map[bool]string{true: "yes", false: "no"}[n.HasCarrier])
		add("driver", known(n.Driver))
		if duplex := i.text(i.System.Sys("class/net", n.Name, "duplex")); duplex != "unknown" {
			add("duplex", duplex)
		}
		if err == nil && speed > 0 {
			add("speed", linkSpeed(speed))
		}
		add("serial", strings.ToLower(n.MACAddress))
	}
}

// cardNames returns the names of a PCI card from the ramdisk's list. A name that the list does not contain is "".
func (i *inspection) cardNames(database []byte, n inventory.Interface) pciids.Names {
	vendor, vendorErr := strconv.ParseUint(known(n.Vendor), 0, 16)
	device, deviceErr := strconv.ParseUint(known(n.Product), 0, 16)
	if vendorErr != nil || deviceErr != nil {
		return pciids.Names{}
	}
	names, err := pciids.Find(bytes.NewReader(database), pciids.ID{Vendor: uint16(vendor), Device: uint16(device)})
	if err != nil {
		i.Log.Warn("names of network card not read", "interface", n.Name, "err", err)
	}
	return names
}

// linkSpeed returns a speed in Mbit/s in the form of lshw: 100Mbit/s, 10Gbit/s, 2500Mbit/s.
func linkSpeed(mbps int) string {
	if mbps%1000 == 0 {
		return strconv.Itoa(mbps/1000) + "Gbit/s"
	}
	return strconv.Itoa(mbps) + "Mbit/s"
}

// businfo returns lshw's name of a card on its bus, "" on buses other than PCI and virtio.
func (i *inspection) businfo(n inventory.Interface) string {
	if address := known(n.PCIAddress); strings.Count(address, ":") == 2 {
		return "pci@" + address
	}
	device, err := filepath.EvalSymlinks(i.System.Sys("class/net", n.Name, "device"))
	if err != nil {
		return ""
	}
	if number, ok := strings.CutPrefix(filepath.Base(device), "virtio"); ok {
		return "virtio@" + number
	}
	return ""
}
