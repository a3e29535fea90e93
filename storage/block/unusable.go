package block

import (
	"context"
	"errors"
	"io/fs"
	"regexp"
	"slices"
)

var namespaceName = regexp.MustCompile(`^nvme\d+n\d+$`)

// IsNVMeNamespace reports whether a kernel name is that of an NVMe namespace. Partitions of a namespace (nvme0n1p1) and
// its hidden paths (nvme0c1n1) are none.
func IsNVMeNamespace(name string) bool { return namespaceName.MatchString(name) }

// UnusableNamespaces lists the NVMe namespaces that the kernel knows and cannot read or write, because of their
// command set or their format, such as one with metadata behind each block. They are hidden or have no size, so that
// [System.Disks] does not list them, and their content is within reach of NVMe commands only. With an error that wraps
// [ErrUnreadable], the list contains the namespaces that could be described.
func (s System) UnusableNamespaces(ctx context.Context) ([]Device, error) {
	found, err := s.describe(ctx, IsNVMeNamespace)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	return slices.DeleteFunc(found, func(d Device) bool {
		return d.Size > 0 && s.text(s.Sys("block", d.Name, "hidden")) != "1"
	}), err
}
