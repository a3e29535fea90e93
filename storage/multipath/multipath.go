package multipath

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"strings"
	"sync"
	"time"

	"ironroot/storage/block"
	"ironroot/storage/devmapper"
	"ironroot/storage/partition"
	"ironroot/storage/sysfs"
)

// nodeTimeout is the time limit for a map's device node, which devtmpfs creates before the ioctl returns.
const nodeTimeout = 10 * time.Second

// Joiner joins paths. The zero value with Log works on the running machine.
type Joiner struct {
	System sysfs.Root
	Log    *slog.Logger

	mu     sync.Mutex
	warned map[string]bool
	kernel kernel // nil: systemKernel
}

// kernel has a device mapper and the partitions of its maps.
type kernel interface {
	open() (mapper, error)
	sync(ctx context.Context, sys sysfs.Root, device string) error
}

// systemKernel is the kernel of this machine.
type systemKernel struct{}

func (systemKernel) open() (mapper, error) { return devmapper.Open() }

func (systemKernel) sync(ctx context.Context, sys sysfs.Root, device string) error {
	return partition.Sync(ctx, sys, device)
}

// mapper creates and changes maps. [devmapper.Control] implements it.
type mapper interface {
	Create(m devmapper.Map) (string, error)
	Reload(uuid string, targets []devmapper.Target) error
	Close() error
}

// Join creates maps of the disks that lead to the same logical unit, and adds disks to the existing maps that they
// belong to. disks is a list from [block.Disks]. Join reports whether that list has changed.
//
// Paths that cannot be joined, such as those in use, are not changed and are logged once. Afterwards the kernel has
// the partitions of the new maps' tables, and none on their paths.
func (j *Joiner) Join(ctx context.Context, disks []block.Device) (changed bool) {
	suspected := suspects(disks)
	if len(units(disks)) == 0 && len(suspected) == 0 {
		return false
	}
	j.mu.Lock()
	defer j.mu.Unlock()
	for _, s := range suspected {
		j.warn("disks may be paths to one disk and are not joined", s.paths, s.err)
	}
	if len(units(disks)) == 0 {
		return false
	}
	// Another caller may have joined them in the meantime.
	disks, err := block.Disks(ctx, j.System)
	if err != nil && !errors.Is(err, block.ErrUnreadable) {
		j.warn("paths to one disk are not joined", nil, err)
		return false
	}
	found := units(disks)
	if len(found) == 0 {
		return true
	}
	m, err := j.system().open()
	if err != nil {
		j.warn("paths to one disk are not joined", found[0].names(), err)
		return false
	}
	defer m.Close() //nolint:errcheck // every call returned its own error
	for _, u := range found {
		path, err := j.join(ctx, m, u)
		if err != nil {
			j.warn("paths to one disk are not joined", u.names(), err)
			continue
		}
		changed = true
		j.Log.Info("paths to one disk are joined", "device", path, "wwid", u.wwid, "paths", u.names())
		j.settle(ctx, path, u)
	}
	return changed
}

var (
	errDiffer   = errors.New("disks with the same identifier differ in size, sectors, model or serial number")
	errTwoUnits = errors.New("disks with the same identifier have different logical unit numbers of one target")
)

func (j *Joiner) join(ctx context.Context, m mapper, u unit) (path string, err error) {
	if !u.alike() {
		return "", fmt.Errorf("%w: %s", errDiffer, u.wwid)
	}
	if u.hasTwoUnits() {
		return "", fmt.Errorf("%w: %s", errTwoUnits, u.wwid)
	}
	numbers, err := j.numbers(u)
	if err != nil {
		return "", err
	}
	// A path of an array with active and passive paths may need the handler, so it is tried first.
	handlers := []string{""}
	if j.asymmetric(u) {
		handlers = []string{"alua", ""}
	}
	for _, handler := range handlers {
		targets := []devmapper.Target{{
			Kind: "multipath", Size: u.paths[0].Size, Parameters: parameters(numbers, handler),
		}}
		if u.existing != nil {
			path, err = u.existing.Path, m.Reload(block.MapUUID(j.System, u.existing.Name), targets)
		} else {
			path, err = m.Create(devmapper.Map{Name: u.wwid, UUID: "mpath-" + u.wwid, Targets: targets})
		}
		if err == nil {
			return path, j.awaitNode(ctx, path)
		}
	}
	return "", err
}

// numbers returns the device numbers of the unit's paths, first those that its map already has.
func (j *Joiner) numbers(u unit) ([]string, error) {
	var devices []string
	if u.existing != nil {
		components, err := block.Components(j.System, u.existing.Name)
		if err != nil {
			return nil, err
		}
		devices = components
	}
	devices = append(devices, u.names()...)
	var numbers []string
	for _, device := range devices {
		text, err := j.System.Files.Read(j.System.Sys("class/block", strings.TrimPrefix(device, "/dev/"), "dev"))
		if errors.Is(err, fs.ErrNotExist) {
			continue // unplugged, but still part of the map
		}
		if err != nil {
			return nil, fmt.Errorf("device number of %s: %w", device, err)
		}
		numbers = append(numbers, strings.TrimSpace(string(text)))
	}
	return numbers, nil
}

// asymmetric reports whether the unit's INQUIRY data (SPC-4, 6.6.2, TPGS) say that its paths differ.
func (j *Joiner) asymmetric(u unit) bool {
	inquiry, err := j.System.Files.Read(j.System.Sys("class/block", u.paths[0].Name, "device/inquiry"))
	return err == nil && len(inquiry) > 5 && inquiry[5]&0x30 != 0
}

// parameters returns the table of the kernel's target (drivers/md/dm-mpath.c): features, the hardware handler, and a
// group for each path, of which the first is used first.
func parameters(numbers []string, handler string) string {
	features, hardware := "1 retain_attached_hw_handler", "0"
	if handler != "" {
		hardware = "1 " + handler
	}
	text := fmt.Sprintf("%s %s %d 1", features, hardware, len(numbers))
	for _, number := range numbers {
		text += " service-time 0 1 1 " + number + " 1"
	}
	return text
}

func (j *Joiner) awaitNode(ctx context.Context, path string) error {
	ctx, cancel := context.WithTimeoutCause(ctx, nodeTimeout, fmt.Errorf("no device node %s", path))
	defer cancel()
	return block.Await(ctx, func() (bool, error) {
		_, err := os.Stat(j.System.Dev(strings.TrimPrefix(path, "/dev/")))
		if errors.Is(err, fs.ErrNotExist) {
			return false, nil
		}
		return err == nil, err
	})
}

// settle drops the partitions of the paths, which must not be used any more, and creates the partitions of a new map.
// Partitions of an existing map are not changed, because it may be in use.
func (j *Joiner) settle(ctx context.Context, path string, u unit) {
	for _, d := range u.paths {
		if err := partition.Forget(ctx, j.System, d.Path); err != nil {
			j.Log.Warn("partitions of a path not dropped", "device", d.Path, "err", err)
		}
	}
	if u.existing != nil {
		return
	}
	if err := j.system().sync(ctx, j.System, path); err != nil {
		j.Log.Warn("partitions of a map not created", "device", path, "err", err)
	}
}

func (j *Joiner) system() kernel {
	if j.kernel == nil {
		return systemKernel{}
	}
	return j.kernel
}

// warn logs a problem once.
func (j *Joiner) warn(text string, paths []string, err error) {
	key := fmt.Sprint(paths, err)
	if j.warned[key] {
		return
	}
	if j.warned == nil {
		j.warned = map[string]bool{}
	}
	j.warned[key] = true
	j.Log.Warn(text, "paths", paths, "err", err)
}
