package partition

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"ironroot/storage/block"
	"ironroot/storage/devmapper"
	"ironroot/storage/sysfs"
)

// mapper creates and removes maps. [devmapper.Control] implements it.
type mapper interface {
	Create(m devmapper.Map) (string, error)
	Remove(uuid string) error
	Targets(uuid string) ([]devmapper.Target, error)
}

// mappedDisk is a multipath map. Each of its partitions is a map of a range of it, named NAME-part1 with the UUID
// part1-UUID, as by kpartx.
type mappedDisk struct {
	sys                    sysfs.Root
	device                 string
	name, uuid, majorMinor string
	mapper                 mapper
}

// mapperFile is a mapper that must be closed.
type mapperFile interface {
	mapper
	io.Closer
}

func openMapper() (mapperFile, error) { return devmapper.Open() }

// withMaps calls do with the partitions of a multipath map. open opens the device mapper.
func withMaps(
	ctx context.Context, sys sysfs.Root, device string, open func() (mapperFile, error),
	do func(context.Context, string, kernelView) error,
) error {
	control, err := open()
	if err != nil {
		return fmt.Errorf("partitions of %s: %w", device, err)
	}
	defer control.Close() //nolint:errcheck // every call returned its own error
	d, err := newMappedDisk(sys, device, control)
	if err != nil {
		return err
	}
	return do(ctx, device, d)
}

func newMappedDisk(sys sysfs.Root, device string, m mapper) (*mappedDisk, error) {
	d := &mappedDisk{sys: sys, device: device, uuid: block.MapUUID(sys, device), mapper: m}
	for file, value := range map[string]*string{"dm/name": &d.name, "dev": &d.majorMinor} {
		text, err := sys.Files.Read(sys.Sys("class/block", strings.TrimPrefix(device, "/dev/"), file))
		if err != nil {
			return nil, fmt.Errorf("partitions of %s: %w", device, err)
		}
		*value = strings.TrimSpace(string(text))
	}
	return d, nil
}

func (d *mappedDisk) partUUID(n int) string { return fmt.Sprintf("part%d-%s", n, d.uuid) }

func (d *mappedDisk) partitions(ctx context.Context) (map[int]extent, error) {
	parts, err := block.Partitions(ctx, d.sys, d.device)
	if err != nil {
		return nil, err
	}
	known := map[int]extent{}
	for _, part := range parts {
		e := extent{-1, part.Size} // a start of -1 differs from every table's if the map is not a plain range
		targets, err := d.mapper.Targets(d.partUUID(part.Number))
		if err != nil {
			return nil, fmt.Errorf("partitions of %s: %w", d.device, err)
		}
		if len(targets) == 1 && targets[0].Kind == "linear" {
			below, first, _ := strings.Cut(targets[0].Parameters, " ")
			if sector, err := strconv.ParseInt(first, 10, 64); err == nil && below == d.majorMinor {
				e.start = sector * devmapper.Sector
			}
		}
		known[part.Number] = e
	}
	return known, nil
}

func (d *mappedDisk) add(n int, e extent) error {
	_, err := d.mapper.Create(devmapper.Map{
		Name: fmt.Sprintf("%s-part%d", d.name, n), UUID: d.partUUID(n),
		Targets: []devmapper.Target{{
			Kind: "linear", Size: e.size, Parameters: fmt.Sprintf("%s %d", d.majorMinor, e.start/devmapper.Sector),
		}},
	})
	if err != nil {
		return fmt.Errorf("add partition %d: %w", n, err)
	}
	return nil
}

// remove removes the map of partition n. It retries while the map is open, see [block.WhileBusy].
func (d *mappedDisk) remove(ctx context.Context, n int) error {
	err := block.WhileBusy(ctx, func() error { return d.mapper.Remove(d.partUUID(n)) })
	if errors.Is(err, unix.ENXIO) {
		return nil // already removed
	}
	if err != nil {
		return fmt.Errorf("remove partition %d: %w", n, err)
	}
	return nil
}
