package block

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"regexp"
	"strconv"
	"strings"

	"ironroot/storage/sysfs"
)

// NVMeController describes an NVMe controller of this machine.
type NVMeController struct {
	Name       string          // kernel name, "nvme0"
	Path       string          // character device, "/dev/nvme0"
	Address    string          // on the PCI bus, "0000:3b:00.0"; "" if it is not known
	Namespaces []NVMeNamespace // those with a block device
}

// NVMeNamespace describes a namespace that has a block device.
type NVMeNamespace struct {
	Path string // "/dev/nvme0n1"
	ID   uint32 // of the subsystem; the number in the path is another one
}

// namespacePath matches the name of a namespace in a controller's directory: nvme0n1, or nvme0c1n1 if the kernel joins
// several paths to the block device nvme0n1.
var namespacePath = regexp.MustCompile(`^(nvme\d+)(?:c\d+)?(n\d+)$`)

// NVMeControllers lists the NVMe controllers on PCI Express, including controllers without any namespace, and without
// NVMe over fabrics. With an error that wraps [ErrUnreadable], the list contains the controllers that could be read.
func NVMeControllers(ctx context.Context, s sysfs.Root) ([]NVMeController, error) {
	return listControllers(ctx, s, "class/nvme", "NVMe controllers", "NVMe controller", nvmeController)
}

// listControllers lists the controllers among the entries of a directory of sysfs, by name. describe reports whether
// an entry is one. Errors name the list by plural and an entry by singular. If the directory does not exist, the list
// is empty. With an error that wraps [ErrUnreadable], the list contains the controllers that could be read.
func listControllers[T any](
	ctx context.Context, s sysfs.Root, dir, plural, singular string,
	describe func(s sysfs.Root, name string) (controller T, ok bool, err error),
) ([]T, error) {
	entries, err := os.ReadDir(s.Sys(dir))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("list %s: %w", plural, err)
	}
	var controllers []T
	var unreadable []error
	for _, entry := range entries {
		if err := ctx.Err(); err != nil {
			return nil, err
		}
		c, ok, err := describe(s, entry.Name())
		switch {
		case errors.Is(err, fs.ErrNotExist): // unplugged in the meantime
		case err != nil:
			unreadable = append(unreadable, fmt.Errorf("%w: %s %s: %w", ErrUnreadable, singular, entry.Name(), err))
		case ok:
			controllers = append(controllers, c)
		}
	}
	return controllers, errors.Join(unreadable...)
}

// nvmeController describes a controller and reports whether it is on PCI Express.
func nvmeController(s sysfs.Root, name string) (c NVMeController, local bool, err error) {
	transport, err := s.Files.Read(s.Sys("class/nvme", name, "transport"))
	if err != nil || strings.TrimSpace(string(transport)) != "pcie" {
		return NVMeController{}, false, err
	}
	c = NVMeController{Name: name, Path: s.Dev(name), Address: readText(s, s.Sys("class/nvme", name, "address"))}
	for _, entry := range names(s.Sys("class/nvme", name)) {
		match := namespacePath.FindStringSubmatch(entry)
		if match == nil {
			continue
		}
		// Without a usable path, the joined paths have no block device.
		if device := match[1] + match[2]; exists(s.Sys("block", device)) {
			id, err := namespaceID(s, device)
			if err != nil {
				return NVMeController{}, false, err
			}
			c.Namespaces = append(c.Namespaces, NVMeNamespace{Path: nodePath(device), ID: id})
		}
	}
	return c, true, nil
}

// namespaceID returns the id of the namespace with a block device. If it has vanished, the id is 0, which no namespace
// has.
func namespaceID(s sysfs.Root, device string) (uint32, error) {
	data, err := s.Files.Read(s.Sys("block", device, "nsid"))
	if errors.Is(err, fs.ErrNotExist) {
		return 0, nil
	}
	if err != nil {
		return 0, err
	}
	id, err := strconv.ParseUint(strings.TrimSpace(string(data)), 10, 32)
	if err != nil {
		return 0, fmt.Errorf("namespace id of %s: %w", device, err)
	}
	return uint32(id), nil
}
