package raid

import (
	"errors"
	"fmt"

	"ironroot/storage/md"
)

// ErrIncomplete is wrapped by errors of arrays that lack members, or whose members do not belong together.
var ErrIncomplete = errors.New("array is not complete")

// CheckComplete returns an error that wraps [ErrIncomplete] unless the members are all those of one array, were in use
// together until it was stopped or the machine lost power, and the kernel needs nothing else to run it. Superblocks of
// version 0.90 are an error: they do not contain all fields that are compared.
func CheckComplete(members []Member) error {
	if len(members) == 0 {
		return fmt.Errorf("%w: no members", ErrIncomplete)
	}
	first, newest := members[0], members[0]
	for _, m := range members {
		if m.Problem == nil && m.Events > newest.Events {
			newest = m
		}
	}
	roles, paths, numbers := map[int]bool{}, map[string]bool{}, map[int]bool{}
	for _, m := range members {
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
	if len(members) != first.Devices {
		return fmt.Errorf("%w: got %d members, want %d", ErrIncomplete, len(members), first.Devices)
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
// [md.Superblock.DataOffset] on. Unlike [md.Superblock.ArraySize], it leaves out incomplete chunks, which the kernel ignores,
// and supports members of different sizes. The members must be in the order of their roles. Errors wrap
// [ErrIncomplete], see [CheckComplete], or [md.ErrInvalid].
func UsedSizes(members []Member) (array int64, used []int64, err error) {
	if err := CheckComplete(members); err != nil {
		return 0, nil, err
	}
	first := members[0]
	chunked := first.Level != "raid1"
	if chunked && (first.Chunk <= 0 || first.Chunk > maxChunk || first.Chunk&(first.Chunk-1) != 0) {
		return 0, nil, fmt.Errorf("%w: got chunks of %d bytes", md.ErrInvalid, first.Chunk)
	}
	for _, m := range members {
		size := m.DataSize
		if chunked {
			size -= size % m.Chunk
		}
		used = append(used, size)
		array += size
	}
	count := int64(len(members))
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
			return 0, nil, fmt.Errorf("%w: layout %#x is not supported, want %#x", md.ErrInvalid, first.Layout, md.NearLayout)
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
