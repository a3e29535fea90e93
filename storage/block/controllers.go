package block

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"regexp"
	"strings"
)

// NVMeController describes an NVMe controller of this machine.
type NVMeController struct {
	Name       string   // kernel name, "nvme0"
	Path       string   // character device, "/dev/nvme0"
	Namespaces []string // block devices of its namespaces, "/dev/nvme0n1"
}

// namespacePath matches what a controller's directory calls a namespace: nvme0n1, or nvme0c1n1 if the kernel joins
// several paths to the block device nvme0n1.
var namespacePath = regexp.MustCompile(`^(nvme\d+)(?:c\d+)?(n\d+)$`)

// NVMeControllers lists the NVMe controllers on PCI Express, including those without any namespace, and not those of
// NVMe over fabrics. With an error that wraps [ErrUnreadable], the list contains the controllers that could be read.
func (s System) NVMeControllers(ctx context.Context) ([]NVMeController, error) {
	entries, err := os.ReadDir(s.Sys("class/nvme"))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("list NVMe controllers: %w", err)
	}
	var controllers []NVMeController
	var unreadable []error
	for _, entry := range entries {
		if err := ctx.Err(); err != nil {
			return nil, err
		}
		c, local, err := s.nvmeController(entry.Name())
		switch {
		case errors.Is(err, fs.ErrNotExist): // unplugged in the meantime
		case err != nil:
			unreadable = append(unreadable, fmt.Errorf("%w: NVMe controller %s: %w", ErrUnreadable, entry.Name(), err))
		case local:
			controllers = append(controllers, c)
		}
	}
	return controllers, errors.Join(unreadable...)
}

// nvmeController describes one controller, and reports whether it is on PCI Express.
func (s System) nvmeController(name string) (c NVMeController, local bool, err error) {
	transport, err := s.Files.Read(s.Sys("class/nvme", name, "transport"))
	if err != nil || strings.TrimSpace(string(transport)) != "pcie" {
		return NVMeController{}, false, err
	}
	c = NVMeController{Name: name, Path: s.Dev(name)}
	for _, entry := range names(s.Sys("class/nvme", name)) {
		match := namespacePath.FindStringSubmatch(entry)
		if match == nil {
			continue
		}
		// Without a usable path, the joined paths have no block device.
		if device := match[1] + match[2]; exists(s.Sys("block", device)) {
			c.Namespaces = append(c.Namespaces, nodePath(device))
		}
	}
	return c, true, nil
}
