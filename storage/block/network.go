package block

import (
	"fmt"
	"path/filepath"
	"regexp"
	"strings"
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
// partition is reached like the first device below it that is reached over a network. An attribute that could not be
// read is the error of a.
func networkOf(a *attributes, d *Device) string {
	if d.Type == "part" {
		disk, err := diskOf(a.s, d.Name)
		if err != nil {
			a.fail(fmt.Errorf("disk of %s: %w", d.Name, err))
			return ""
		}
		return networkOfName(a, disk)
	}
	switch d.Transport {
	case "iscsi", "fc", "fcoe":
		return d.Transport
	case "nvme":
		return nvmeNetwork(a, d.Name)
	}
	for _, driver := range networkDrivers {
		if strings.HasPrefix(d.Name, driver.prefix) {
			return driver.network
		}
	}
	host, _, isSCSI := strings.Cut(d.HCTL, ":")
	switch {
	case isSCSI:
		if a.text(a.s.Sys("class/scsi_host", "host"+host, "proc_name")) == "ib_srp" {
			return "srp"
		}
	case strings.HasPrefix(d.Name, "sd"):
		a.fail(fmt.Errorf("%s has no SCSI address", d.Name))
	}
	for _, member := range a.names(a.s.Sys("class/block", d.Name, "slaves")) {
		if network := networkOfName(a, member); network != "" {
			return network
		}
	}
	return ""
}

// networkOfName is networkOf for a kernel name.
func networkOfName(a *attributes, name string) string {
	d, err := Find(a.s, name)
	if err != nil {
		a.fail(err)
		return ""
	}
	if d.Type == "part" {
		return networkOf(a, &d)
	}
	if d.NetworkUnread != nil {
		a.fail(d.NetworkUnread)
	}
	return d.Network
}

// nvmeNetwork returns the transport of a namespace as "nvme-tcp" if one of its controllers is reached over a network.
// Several controllers of a namespace are listed by its subsystem.
func nvmeNetwork(a *attributes, name string) string {
	device, err := filepath.EvalSymlinks(a.s.Sys("class/block", name, "device"))
	if err != nil {
		a.fail(fmt.Errorf("controller of %s: %w", name, err))
		return ""
	}
	controllers := []string{device}
	if strings.Contains(device, "/nvme-subsystem/") {
		controllers = nil
	}
	for _, entry := range a.names(device) {
		if controllerName.MatchString(entry) {
			controllers = append(controllers, filepath.Join(device, entry))
		}
	}
	if len(controllers) == 0 {
		a.fail(fmt.Errorf("%s has no controller", name))
	}
	for _, controller := range controllers {
		transport := a.text(filepath.Join(controller, "transport"))
		if transport == "" {
			real, err := filepath.EvalSymlinks(controller)
			if err != nil {
				a.fail(fmt.Errorf("controller of %s: %w", name, err))
				continue
			}
			if !strings.Contains(real, "/nvme-fabrics/") {
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
