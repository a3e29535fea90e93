package machinetest

import (
	"encoding/binary"
	"encoding/hex"
	"fmt"
	"strconv"
	"strings"
)

// Tables returns an SMBIOS 3 entry point and a table with the described structures. A description is the type, the
// handle and the length, then fields: "offset:b=1", "offset:w=1", "offset:d=1" and "offset:q=1" are numbers of one,
// two, four and eight bytes, "offset:h=0102" is bytes, and "offset:s=text" is a reference to a string, where _ is a
// space and __ an underscore. The description "version 3.2" sets the version.
func Tables(structures []string) (entry, table []byte, err error) {
	major, minor := byte(3), byte(2)
	for _, text := range structures {
		if version, ok := strings.CutPrefix(text, "version "); ok {
			if _, err := fmt.Sscanf(version, "%d.%d", &major, &minor); err != nil {
				return nil, nil, fmt.Errorf("smbios %s: %w", text, err)
			}
			continue
		}
		s, err := structure(strings.Fields(text))
		if err != nil {
			return nil, nil, fmt.Errorf("smbios %s: %w", text, err)
		}
		table = append(table, s...)
	}
	table = append(table, 127, 4, 0xff, 0xfe, 0, 0)
	return EntryPoint(major, minor, len(table)), table, nil
}

// EntryPoint returns an SMBIOS 3 entry point for a table at byte 32 of the same file.
func EntryPoint(major, minor byte, size int) []byte {
	entry := make([]byte, 24)
	copy(entry, "_SM3_")
	entry[6], entry[7], entry[8], entry[10] = 24, major, minor, 1
	binary.LittleEndian.PutUint32(entry[12:], uint32(size))
	entry[16] = 32
	var sum byte
	for _, b := range entry {
		sum += b
	}
	entry[5] = -sum
	return entry
}

func structure(fields []string) ([]byte, error) {
	if len(fields) < 3 {
		return nil, fmt.Errorf("got %d fields, want type, handle and length", len(fields))
	}
	var head [3]uint64
	for i := range head {
		n, err := strconv.ParseUint(fields[i], 0, 16)
		if err != nil {
			return nil, err
		}
		head[i] = n
	}
	data := make([]byte, head[2])
	data[0], data[1] = byte(head[0]), byte(head[2])
	binary.LittleEndian.PutUint16(data[2:], uint16(head[1]))
	var strs []string
	for _, field := range fields[3:] {
		at, rest, _ := strings.Cut(field, ":")
		kind, value, ok := strings.Cut(rest, "=")
		offset, err := strconv.ParseUint(at, 16, 8)
		if !ok || err != nil || offset+width(kind) > head[2] {
			return nil, fmt.Errorf("field %q", field)
		}
		if kind == "s" {
			strs = append(strs, strings.NewReplacer("__", "_", "_", " ").Replace(value))
			data[offset] = byte(len(strs))
			continue
		}
		if err := number(data[offset:], kind, value); err != nil {
			return nil, err
		}
	}
	for _, s := range strs {
		data = append(append(data, s...), 0)
	}
	if len(strs) == 0 {
		data = append(data, 0)
	}
	return append(data, 0), nil
}

// width returns the size of a field in bytes; bytes in hexadecimal have no fixed size.
func width(kind string) uint64 {
	switch kind {
	case "w":
		return 2
	case "d":
		return 4
	case "q":
		return 8
	default:
		return 1
	}
}

func number(into []byte, kind, value string) error {
	if kind == "h" {
		raw, err := hex.DecodeString(value)
		copy(into, raw)
		return err
	}
	n, err := strconv.ParseUint(value, 0, 64)
	if err != nil {
		return err
	}
	switch kind {
	case "b":
		into[0] = byte(n)
	case "w":
		binary.LittleEndian.PutUint16(into, uint16(n))
	case "d":
		binary.LittleEndian.PutUint32(into, uint32(n))
	case "q":
		binary.LittleEndian.PutUint64(into, n)
	default:
		return fmt.Errorf("field of kind %q", kind)
	}
	return nil
}
