package block

import (
	"path/filepath"
	"regexp"
	"strings"

	"ironroot/internal/sysfs"
)

var controllerName = regexp.MustCompile(`^nvme\d+$`)

// localNVMe are the transports of NVMe controllers inside the machine, as the kernel names them in sysfs.
var localNVMe = map[string]bool{"pcie": true, "apple-nvme": true, "loop": true}

// networkDrivers are the drivers whose disks are reached over a network, by the prefix of the kernel name.
var networkDrivers = []struct{ prefix, network string }{
	{"nbd", "nbd"},
	{"rbd", "rbd"},
	{"drbd", "drbd"},
	{"etherd!", "aoe"},
}

// networkOf returns how a device is reached over a network, "" for a device of this machine. An array, a map or a
// partition is reached like the first device below it that is reached over a network.
func networkOf(s sysfs.Root, d *Device) string {
	if d.Type == "part" {
		if disk, err := diskOf(s, d.Name); err == nil {
			return networkOfName(s, disk)
		}
	}
	switch d.Transport {
	case "iscsi", "fc", "fcoe":
		return d.Transport
	case "nvme":
		return nvmeNetwork(s, d.Name)
	}
	for _, driver := range networkDrivers {
		if strings.HasPrefix(d.Name, driver.prefix) {
			return driver.network
		}
	}
	if host, _, isSCSI := strings.Cut(d.HCTL, ":"); isSCSI &&
		readText(s, s.Sys("class/scsi_host", "host"+host, "proc_name")) == "ib_srp" {
		return "srp"
	}
	for _, member := range names(s.Sys("class/block", d.Name, "slaves")) {
		if network := networkOfName(s, member); network != "" {
			return network
		}
	}
	return ""
}

// networkOfName is networkOf for a kernel name. A device that has vanished is none of a network.
func networkOfName(s sysfs.Root, name string) string {
	d, err := Find(s, name)
	if err != nil {
		return ""
	}
	if d.Type == "part" {
		return networkOf(s, &d)
	}
	return d.Network
}

// nvmeNetwork returns the transport of a namespace as "nvme-tcp" if one of its controllers is reached over a network.
// Several controllers of a namespace are listed by its subsystem.
func nvmeNetwork(s sysfs.Root, name string) string {
	device, err := filepath.EvalSymlinks(s.Sys("class/block", name, "device"))
	if err != nil {
		return ""
	}
	controllers := []string{device}
	for _, entry := range names(device) {
		if controllerName.MatchString(entry) {
			controllers = append(controllers, filepath.Join(device, entry))
		}
	}
	for _, controller := range controllers {
		transport := readText(s, filepath.Join(controller, "transport"))
		if transport == "" {
			real, err := filepath.EvalSymlinks(controller)
			if err != nil || !strings.Contains(real, "/nvme-fabrics/") {
				continue
			}
			transport = "fabrics"
		}
		if !localNVMe[transport] {
			return "nvme-" + transport
		}
	}
	return ""
}
