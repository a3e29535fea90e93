package raid

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"ironroot/storage/md"
)

// ErrIncomplete is wrapped by errors of arrays that lack members, or whose members do not belong together.
var ErrIncomplete = errors.New("array is not complete")

// Array is an array of Linux software RAID: its members, by their superblocks.
type Array []Member

// String describes the array by its level and name.
func (a Array) String() string { return a[0].String() }

// Paths returns the device paths of the members.
func (a Array) Paths() []string {
	var paths []string
	for _, m := range a {
		paths = append(paths, m.Device.Path)
	}
	return paths
}

// CheckComplete returns an error that wraps [ErrIncomplete] unless the members are all members of one array, were in
// use together until it was stopped or the machine lost power, and the kernel needs nothing else to run it.
// Superblocks of version 0.90 are an error: they do not contain all fields that are compared.
func (a Array) CheckComplete() error {
	if len(a) == 0 {
		return fmt.Errorf("%w: no members", ErrIncomplete)
	}
	first, newest := a[0], a[0]
	for _, m := range a {
		if m.Problem == nil && m.Events > newest.Events {
			newest = m
		}
	}
	roles, paths, numbers := map[int]bool{}, map[string]bool{}, map[int]bool{}
	for _, m := range a {
		err := m.checkWith(first)
		if err == nil {
			err = m.checkFresh(newest)
		}
		if err != nil {
			return fmt.Errorf("%w: %s: %w", ErrIncomplete, m.Device.Path, err)
		}
		switch {
		case paths[m.Device.Path]:
			return fmt.Errorf("%w: %s: device occurs twice", ErrIncomplete, m.Device.Path)
		case roles[m.Role]:
			return fmt.Errorf("%w: %s: role %d occurs twice", ErrIncomplete, m.Device.Path, m.Role)
		case numbers[m.Number]:
			return fmt.Errorf("%w: %s: number %d occurs twice", ErrIncomplete, m.Device.Path, m.Number)
		}
		roles[m.Role], paths[m.Device.Path], numbers[m.Number] = true, true, true
	}
	if len(a) != first.Devices {
		return fmt.Errorf("%w: got %d members, want %d", ErrIncomplete, len(a), first.Devices)
	}
	return nil
}

// checkWith returns an error if a member cannot be used together with another one.
func (m Member) checkWith(first Member) error {
	const supported = md.FeatureBitmap | md.FeatureRAID0Layout
	switch {
	case m.Problem != nil:
		return m.Problem
	case m.Version == "0.90":
		return fmt.Errorf("superblock %s is not supported", m.Version)
	case m.Version != first.Version:
		return fmt.Errorf("got superblock %s, want %s", m.Version, first.Version)
	case m.UUID != first.UUID || m.Name != first.Name:
		return fmt.Errorf("got array %q with UUID %s, want %q with UUID %s", m.Name, m.UUID, first.Name, first.UUID)
	case m.Level != first.Level || m.Layout != first.Layout || m.Chunk != first.Chunk || m.Devices != first.Devices:
		return fmt.Errorf("got %s of %d members, layout %#x, chunks of %d bytes, want %s of %d, %#x, %d",
			m.Level, m.Devices, m.Layout, m.Chunk, first.Level, first.Devices, first.Layout, first.Chunk)
	case m.DataSize != first.DataSize && m.Level != "raid0": // uses whole members
		return fmt.Errorf("got %d bytes of data, want %d", m.DataSize, first.DataSize)
	case m.Features != first.Features || m.Features&^supported != 0:
		return fmt.Errorf("got features %#x, want %#x and none but %#x", m.Features, first.Features, supported)
	case m.Role < 0 || m.Role >= m.Devices:
		return fmt.Errorf("got role %d of %d members", m.Role, m.Devices)
	}
	return nil
}

// checkFresh returns an error if a member lacks changes of the array that the newest one has. If the machine lost power
// while the superblocks were updated, the event counts differ by one. They also do if that update dropped the member:
// then it has no role on the newest one, and its data are old.
func (m Member) checkFresh(newest Member) error {
	switch {
	case newest.Events-m.Events > md.MaxEventsApart:
		return fmt.Errorf("got %d events, want %d as on %s, or %d less",
			m.Events, newest.Events, newest.Device.Path, md.MaxEventsApart)
	case m.Events != newest.Events && newest.RoleOf(m.Number) != m.Role:
		return fmt.Errorf("got role %d, want %d as on %s, which is newer: the array has dropped the member",
			m.Role, newest.RoleOf(m.Number), newest.Device.Path)
	}
	return nil
}

// UsedSizes returns the size of a complete array, and how many bytes of each member it uses from
// [md.Superblock.DataOffset] on. Unlike [md.Superblock.ArraySize], it leaves out incomplete chunks, which the kernel
// ignores, and supports members of different sizes. The members must be in the order of their roles. Errors wrap
// [ErrIncomplete], see [Array.CheckComplete], or [md.ErrInvalid].
func (a Array) UsedSizes() (array int64, used []int64, err error) {
	if err := a.CheckComplete(); err != nil {
		return 0, nil, err
	}
	first := a[0]
	chunked := first.Level != "raid1"
	if chunked && (first.Chunk <= 0 || first.Chunk > maxChunk || first.Chunk&(first.Chunk-1) != 0) {
		return 0, nil, fmt.Errorf("%w: got chunks of %d bytes", md.ErrInvalid, first.Chunk)
	}
	for _, m := range a {
		size := m.DataSize
		if chunked {
			size -= size % m.Chunk
		}
		used = append(used, size)
		array += size
	}
	count := int64(len(a))
	switch first.Level {
	case "raid0":
	case "raid1":
		array = used[0]
	case "raid5":
		array -= used[0]
	case "raid6":
		array -= 2 * used[0]
	case "raid10":
		if first.Layout != md.NearLayout {
			return 0, nil, fmt.Errorf("%w: layout %#x is not supported, want %#x",
				md.ErrInvalid, first.Layout, md.NearLayout)
		}
		// The two copies of a chunk follow each other. If the number of chunks is odd, the last one is unused.
		chunks := used[0] / first.Chunk * count
		array = chunks / 2 * first.Chunk
		if chunks%2 != 0 {
			used[count-1] -= first.Chunk
		}
	default:
		return 0, nil, fmt.Errorf("%w: level %s is not supported", md.ErrInvalid, first.Level)
	}
	return array, used, nil
}

// maxChunk is the largest size of a chunk.
const maxChunk = 1 << 30

// CheckConsistent returns an error if the members cannot belong to one array. Members of one array have the same UUID,
// level, number of devices and size, different numbers and roles, and were in use together. The error names at most
// maxDescribed members, first those that contradict each other.
func (a Array) CheckConsistent() error {
	for i, m := range a {
		for j, other := range a[:i] {
			var problem string
			switch {
			case m.UUID != other.UUID:
				problem = "members have different UUIDs"
			case m.Level != other.Level:
				problem = "members have different levels"
			case m.Devices != other.Devices:
				problem = "members have different numbers of devices"
			case m.ArraySize != other.ArraySize && m.Level != "raid0" && m.Level != "linear": // use whole members
				problem = "members have different sizes"
			case m.Number == other.Number:
				problem = fmt.Sprintf("two members have number %d", m.Number)
			case m.Role == other.Role && m.Role >= 0:
				problem = fmt.Sprintf("two members have role %d", m.Role)
			case eventsApart(m, other) > md.MaxEventsApart:
				problem = fmt.Sprintf("events of members differ by %d", eventsApart(m, other))
			default:
				continue
			}
			return fmt.Errorf("%s: %s", problem, a.describe(j, i))
		}
		if m.Role >= m.Devices {
			return fmt.Errorf("a member has role %d of %d: %s", m.Role, m.Devices, a.describe(i))
		}
	}
	return nil
}

// eventsApart returns the difference between the event counts of two members.
func eventsApart(m, other Member) uint64 {
	return max(m.Events, other.Events) - min(m.Events, other.Events)
}

// maxDescribed limits the members that an error lists: there can be one on each of a thousand disks.
const maxDescribed = 16

// describe lists the devices of at most maxDescribed members with the fields that distinguish arrays. It starts with
// those at positions.
func (a Array) describe(positions ...int) string {
	for i := range a {
		if len(positions) == maxDescribed {
			break
		}
		if !slices.Contains(positions, i) {
			positions = append(positions, i)
		}
	}
	var list []string
	for _, i := range positions {
		m := a[i]
		list = append(list, fmt.Sprintf("%s (UUID %s, %s of %d, %d bytes, number %d, role %d, events %d)",
			m.Device.Path, m.UUID, m.Level, m.Devices, m.ArraySize, m.Number, m.Role, m.Events))
	}
	if more := len(a) - len(list); more > 0 {
		list = append(list, fmt.Sprintf("and %d more", more))
	}
	return strings.Join(list, ", ")
}
