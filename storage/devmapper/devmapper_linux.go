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

// Control is the open control device.
type Control struct{ file *os.File }

const (
	controlPath  = "/dev/mapper/control"
	controlMinor = 236 // of the major number of miscellaneous devices: MAPPER_CTRL_MINOR
	miscMajor    = 10
)

// Open opens the control device. If the device mapper is a module that is not loaded yet, there is no device node.
// Open then creates one, and the kernel loads the module when it is opened.
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

// Close closes the control device. Maps are kept.
func (c *Control) Close() error { return c.file.Close() }

// Create creates a map and returns its device path. The error wraps unix.EBUSY if a device below is in use or if a map
// with that name or UUID exists. After an error there is no new map.
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

// Reload replaces the table of a map. After an error the map has its old table.
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
	// Without the suspend flag, this ioctl activates the loaded table.
	if err := c.simple(unix.DM_DEV_SUSPEND, uuid); err != nil {
		return fmt.Errorf("map %s: resume: %w", uuid, errors.Join(err, c.simple(unix.DM_TABLE_CLEAR, uuid)))
	}
	return nil
}

// Remove removes a map. The error wraps unix.EBUSY if it is in use, and unix.ENXIO if it does not exist.
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

// request is the argument of an ioctl: a header followed by the table.
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
	_, _, errno := unix.Syscall(unix.SYS_IOCTL, c.file.Fd(), command, uintptr(unsafe.Pointer(r)))
	if errno != 0 {
		return errno
	}
	return nil
}

// encodeTargets encodes a table as a sequence of struct dm_target_spec, each followed by its parameters, a zero byte,
// and padding.
func encodeTargets(data []byte, targets []Target) error {
	for _, t := range targets {
		end := (unix.SizeofDmTargetSpec + len(t.Parameters) + 1 + 7) &^ 7
		if end > len(data) || len(t.Kind) >= unix.DM_MAX_TYPE_NAME {
			return fmt.Errorf("the table is too long at target %s of %d bytes", t.Kind, len(t.Parameters))
		}
		if t.Start%Sector != 0 || t.Size%Sector != 0 || t.Size <= 0 {
			return fmt.Errorf("target %s at byte %d of %d bytes is not a range of sectors", t.Kind, t.Start, t.Size)
		}
		ne := binary.NativeEndian
		ne.PutUint64(data, uint64(t.Start/Sector))
		ne.PutUint64(data[8:], uint64(t.Size/Sector))
		ne.PutUint32(data[20:], uint32(end)) // offset of the next target from this one
		copy(data[24:], t.Kind)
		copy(data[unix.SizeofDmTargetSpec:], t.Parameters)
		data = data[end:]
	}
	return nil
}

// decodeTargets decodes a table from the kernel. Unlike when encoding, the offset of the next target counts from the
// start of the table.
func decodeTargets(data []byte, count int) ([]Target, error) {
	var targets []Target
	for at := 0; len(targets) < count; {
		if at < 0 || at+unix.SizeofDmTargetSpec > len(data) {
			return nil, fmt.Errorf("target %d of %d is outside the table, at %d", len(targets), count, at)
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
			return nil, fmt.Errorf("target %d of %d has an invalid offset %d of the next", len(targets)-1, count, next)
		}
		at = next
	}
	return targets, nil
}
