package md

import "fmt"

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
func (s Superblock) checkWith(first Member) error {
	const supported = FeatureBitmap | FeatureRAID0Layout
	switch {
	case s.Problem != nil:
		return s.Problem
	case s.Version == "0.90":
		return fmt.Errorf("superblock %s is not supported", s.Version)
	case s.Version != first.Version:
		return fmt.Errorf("got superblock %s, want %s", s.Version, first.Version)
	case s.UUID != first.UUID || s.Name != first.Name:
		return fmt.Errorf("got array %q with UUID %s, want %q with UUID %s", s.Name, s.UUID, first.Name, first.UUID)
	case s.Level != first.Level || s.Layout != first.Layout || s.Chunk != first.Chunk || s.Devices != first.Devices:
		return fmt.Errorf("got %s of %d members, layout %#x, chunks of %d bytes, want %s of %d, %#x, %d",
			s.Level, s.Devices, s.Layout, s.Chunk, first.Level, first.Devices, first.Layout, first.Chunk)
	case s.DataSize != first.DataSize && s.Level != "raid0": // uses whole members
		return fmt.Errorf("got %d bytes of data, want %d", s.DataSize, first.DataSize)
	case s.Features != first.Features || s.Features&^supported != 0:
		return fmt.Errorf("got features %#x, want %#x and none but %#x", s.Features, first.Features, supported)
	case s.Role < 0 || s.Role >= s.Devices:
		return fmt.Errorf("got role %d of %d members", s.Role, s.Devices)
	}
	return nil
}

// checkFresh returns an error if a member lacks changes of the array that the newest one has. If the machine lost power
// while the superblocks were updated, the event counts differ by one. They also do if that update dropped the member:
// then it has no role on the newest one, and its data are old.
func (s Superblock) checkFresh(newest Member) error {
	switch {
	case newest.Events-s.Events > MaxEventsApart:
		return fmt.Errorf("got %d events, want %d as on %s, or %d less",
			s.Events, newest.Events, newest.Device.Path, MaxEventsApart)
	case s.Events != newest.Events && newest.roleOf(s.Number) != s.Role:
		return fmt.Errorf("got role %d, want %d as on %s, which is newer: the array has dropped the member",
			s.Role, newest.roleOf(s.Number), newest.Device.Path)
	}
	return nil
}

// UsedSizes returns the size of a complete array, and how many bytes of each member it uses from
// [Superblock.DataOffset] on. Unlike [Superblock.ArraySize], it leaves out incomplete chunks, which the kernel ignores,
// and supports members of different sizes. The members must be in the order of their roles. Errors wrap
// [ErrIncomplete], see [CheckComplete], or [ErrInvalid].
func UsedSizes(members []Member) (array int64, used []int64, err error) {
	if err := CheckComplete(members); err != nil {
		return 0, nil, err
	}
	first := members[0]
	chunked := first.Level != "raid1"
	if chunked && (first.Chunk <= 0 || first.Chunk > maxChunk || first.Chunk&(first.Chunk-1) != 0) {
		return 0, nil, fmt.Errorf("%w: got chunks of %d bytes", ErrInvalid, first.Chunk)
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
		if first.Layout != NearLayout {
			return 0, nil, fmt.Errorf("%w: layout %#x is not supported, want %#x", ErrInvalid, first.Layout, NearLayout)
		}
		// The two copies of a chunk follow each other. If the number of chunks is odd, the last one is unused.
		chunks := used[0] / first.Chunk * count
		array = chunks / 2 * first.Chunk
		if chunks%2 != 0 {
			used[count-1] -= first.Chunk
		}
	default:
		return 0, nil, fmt.Errorf("%w: level %s is not supported", ErrInvalid, first.Level)
	}
	return array, used, nil
}

// maxChunk is the largest size of a chunk.
const maxChunk = 1 << 30
