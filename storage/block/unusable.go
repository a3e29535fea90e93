package block

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"regexp"
)

// namespaceName matches NVMe namespaces, and not the hidden paths of one (nvme0c1n1).
var namespaceName = regexp.MustCompile(`^nvme\d+n\d+$`)

// UnusableNamespaces lists the NVMe namespaces that the kernel knows and cannot read or write, because of their
// command set or their format, such as one with metadata behind each block. They are hidden or have no size, so that
// [System.Disks] does not list them, and their content is within reach of NVMe commands only.
func (s System) UnusableNamespaces(ctx context.Context) ([]Device, error) {
	entries, err := os.ReadDir(s.Sys("block"))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("list block devices: %w", err)
	}
	var found []Device
	for _, entry := range entries {
		if err := ctx.Err(); err != nil {
			return nil, err
		}
		if !namespaceName.MatchString(entry.Name()) {
			continue
		}
		device, err := s.Device(entry.Name())
		if errors.Is(err, fs.ErrNotExist) {
			continue // unplugged meanwhile
		}
		if err != nil {
			return nil, err
		}
		if device.Size == 0 || s.text(s.Sys("block", entry.Name(), "hidden")) == "1" {
			found = append(found, device)
		}
	}
	return found, nil
}
