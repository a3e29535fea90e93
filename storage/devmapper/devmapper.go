// Package devmapper makes, changes and removes maps of the kernel's device mapper by the ioctls of /dev/mapper/control
// (linux/dm-ioctl.h, version 4; Documentation/admin-guide/device-mapper).
//
// Device nodes are those that devtmpfs makes, /dev/dm-N: there are no names below /dev/mapper and nothing is told to udev.
// A map is known by its UUID. Its table, and the answer to a question for it, has to fit into 16 KiB, and every map has
// one table only: suspending and snapshots are not here.
package devmapper

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"unsafe"

	"golang.org/x/sys/unix"
)

// Target is a range of a map and what stands behind it.
type Target struct {
	Kind       string // of the kernel's targets: "linear", "multipath"
	Start      int64  // bytes from the start of the map
	Size       int64  // bytes
	Parameters string // in the target's own words
}

// Map is a device of the device mapper. Name and UUID are both unique, and have at most 127 and 128 bytes.
type Map struct {
	Name, UUID string
	Targets    []Target
}

// Control is the open control device.
type Control struct{ file *os.File }

const (
	controlPath  = "/dev/mapper/control"
	controlMinor = 236 // of the major number of miscellaneous devices: MAPPER_CTRL_MINOR
	miscMajor    = 10
	// Sector is the unit of the device mapper in bytes, whatever the sectors of a device are.
	Sector = 512
)

// Open opens the control device. Where the device mapper is a module that is not loaded yet there is no node, and the kernel
// is made to load it by the opening of one.
func Open() (*Control, error) {
	file, err := os.OpenFile(controlPath, os.O_RDWR, 0)
	if errors.Is(err, fs.ErrNotExist) {
		if err := makeNode(); err != nil {
			return nil, fmt.Errorf("device mapper: make %s: %w", controlPath, err)
		}
		file, err = os.OpenFile(controlPath, os.O_RDWR, 0)
	}
	if err != nil {
		return nil, fmt.Errorf("device mapper: %w", err)
	}
	return &Control{file}, nil
}

func makeNode() error {
	if err := os.MkdirAll(filepath.Dir(controlPath), 0o755); err != nil {
		return err
	}
	err := unix.Mknod(controlPath, unix.S_IFCHR|0o600, int(unix.Mkdev(miscMajor, controlMinor)))
	if errors.Is(err, unix.EEXIST) {
		return nil
	}
	return err
}

// Close closes the control device. Maps stay.
func (c *Control) Close() error { return c.file.Close() }

// Create makes a map and returns its device path. The error wraps unix.EBUSY where a device below is in use, or a map of
// that name or UUID is there already. After an error there is no new map.
func (c *Control) Create(m Map) (path string, err error) {
	r := &request{}
	if len(m.Name) >= unix.DM_NAME_LEN || len(m.UUID) >= unix.DM_UUID_LEN {
		return "", fmt.Errorf("map %s: the name or the UUID %s is too long", m.Name, m.UUID)
	}
	copy(r.header.Name[:], m.Name)
	copy(r.header.Uuid[:], m.UUID)
	if err := c.call(unix.DM_DEV_CREATE, r); err != nil {
		return "", fmt.Errorf("map %s: create: %w", m.Name, err)
	}
	path = fmt.Sprintf("/dev/dm-%d", unix.Minor(r.header.Dev))
	if err := c.Reload(m.UUID, m.Targets); err != nil {
		return "", errors.Join(err, c.Remove(m.UUID))
	}
	return path, nil
}

// Reload gives a map another table. Where that fails the map keeps the one it has.
func (c *Control) Reload(uuid string, targets []Target) error {
	r := request{}
	copy(r.header.Uuid[:], uuid)
	if err := encodeTargets(r.data[:], targets); err != nil {
		return fmt.Errorf("map %s: %w", uuid, err)
	}
	r.header.Target_count = uint32(len(targets))
	if err := c.call(unix.DM_TABLE_LOAD, &r); err != nil {
		return fmt.Errorf("map %s: load table: %w", uuid, err)
	}
	// Without the flag that asks to suspend, this ioctl takes the loaded table into use.
	if err := c.simple(unix.DM_DEV_SUSPEND, uuid); err != nil {
		return fmt.Errorf("map %s: resume: %w", uuid, errors.Join(err, c.simple(unix.DM_TABLE_CLEAR, uuid)))
	}
	return nil
}

// Remove removes a map. The error wraps unix.EBUSY where it is in use, and unix.ENXIO where there is none.
func (c *Control) Remove(uuid string) error {
	if err := c.simple(unix.DM_DEV_REMOVE, uuid); err != nil {
		return fmt.Errorf("map %s: remove: %w", uuid, err)
	}
	return nil
}

// Targets returns the table of a map.
func (c *Control) Targets(uuid string) ([]Target, error) {
	r := request{header: unix.DmIoctl{Flags: unix.DM_STATUS_TABLE_FLAG}}
	copy(r.header.Uuid[:], uuid)
	if err := c.call(unix.DM_TABLE_STATUS, &r); err != nil {
		return nil, fmt.Errorf("map %s: read table: %w", uuid, err)
	}
	if r.header.Flags&unix.DM_BUFFER_FULL_FLAG != 0 {
		return nil, fmt.Errorf("map %s: its table has more than %d bytes", uuid, len(r.data))
	}
	targets, err := decodeTargets(r.data[:], int(r.header.Target_count))
	if err != nil {
		return nil, fmt.Errorf("map %s: %w", uuid, err)
	}
	return targets, nil
}

// request is an ioctl's argument: what follows the header is the table.
type request struct {
	header unix.DmIoctl
	data   [16 << 10]byte
}

func (c *Control) simple(command uintptr, uuid string) error {
	r := request{}
	copy(r.header.Uuid[:], uuid)
	return c.call(command, &r)
}

func (c *Control) call(command uintptr, r *request) error {
	r.header.Version = [3]uint32{unix.DM_VERSION_MAJOR, 0, 0}
	r.header.Data_size = uint32(unsafe.Sizeof(*r))
	r.header.Data_start = uint32(unsafe.Offsetof(r.data))
	if _, _, errno := unix.Syscall(unix.SYS_IOCTL, c.file.Fd(), command, uintptr(unsafe.Pointer(r))); errno != 0 {
		return errno
	}
	return nil
}

// encodeTargets writes a table as a row of struct dm_target_spec, each followed by its parameters, ended by a zero byte, and
// padding.
func encodeTargets(data []byte, targets []Target) error {
	for _, t := range targets {
		end := (unix.SizeofDmTargetSpec + len(t.Parameters) + 1 + 7) &^ 7
		if end > len(data) || len(t.Kind) >= unix.DM_MAX_TYPE_NAME {
			return fmt.Errorf("the table is too long at target %s of %d bytes", t.Kind, len(t.Parameters))
		}
		if t.Start%Sector != 0 || t.Size%Sector != 0 || t.Size <= 0 {
			return fmt.Errorf("target %s from byte %d, %d long, does not consist of sectors", t.Kind, t.Start, t.Size)
		}
		ne := binary.NativeEndian
		ne.PutUint64(data, uint64(t.Start/Sector))
		ne.PutUint64(data[8:], uint64(t.Size/Sector))
		ne.PutUint32(data[20:], uint32(end)) // from this one to the next
		copy(data[24:], t.Kind)
		copy(data[unix.SizeofDmTargetSpec:], t.Parameters)
		data = data[end:]
	}
	return nil
}

// decodeTargets reads a table as the kernel writes it, where the way to the next target counts from the start of the table.
func decodeTargets(data []byte, count int) ([]Target, error) {
	var targets []Target
	for at := 0; len(targets) < count; {
		if at < 0 || at+unix.SizeofDmTargetSpec > len(data) {
			return nil, fmt.Errorf("target %d of %d lies outside the table, at %d", len(targets), count, at)
		}
		spec, ne := data[at:], binary.NativeEndian
		kind, _, _ := bytes.Cut(spec[24:unix.SizeofDmTargetSpec], []byte{0})
		parameters, _, _ := bytes.Cut(spec[unix.SizeofDmTargetSpec:], []byte{0})
		targets = append(targets, Target{
			Kind: string(kind), Parameters: string(parameters),
			Start: int64(ne.Uint64(spec) * Sector), Size: int64(ne.Uint64(spec[8:]) * Sector),
		})
		next := int(ne.Uint32(spec[20:]))
		if next <= at && len(targets) < count {
			return nil, fmt.Errorf("target %d of %d says that the next begins at %d", len(targets)-1, count, next)
		}
		at = next
	}
	return targets, nil
}
