package fat

import (
	"encoding/binary"
	"fmt"
	"strings"
	"unicode/utf16"
)

const (
	attrArchive = 0x20
	longUnits   = 13  // UTF-16 units of a name in one entry
	maxUnits    = 255 // of a name
	firstDay    = 0x21
)

// entry is a folder's short entry. Its times are the first day FAT knows, 1 January 1980.
func entry(short string, attributes byte, first, size uint32) []byte {
	e := make([]byte, entrySize)
	copy(e, short)
	e[11] = attributes
	le := binary.LittleEndian
	for _, day := range []int{16, 18, 24} {
		le.PutUint16(e[day:], firstDay)
	}
	le.PutUint16(e[20:], uint16(first>>16))
	le.PutUint16(e[26:], uint16(first))
	le.PutUint32(e[28:], size)
	return e
}

func labelField(label string) string { return fmt.Sprintf("%-11.11s", label) }

// shortAlias makes a short name that no other file with another number has: "META_D~1JSO".
func shortAlias(name string, number int) string {
	plain := func(s string) string {
		return strings.Map(func(r rune) rune {
			switch {
			case r == '.' || r == ' ':
				return -1
			case r >= 'A' && r <= 'Z' || r >= '0' && r <= '9':
				return r
			}
			return '_'
		}, strings.ToUpper(s))
	}
	extension := ""
	if dot := strings.LastIndexByte(name, '.'); dot > 0 {
		name, extension = name[:dot], name[dot+1:]
	}
	tail := fmt.Sprintf("~%d", number+1)
	name, extension = plain(name), plain(extension)
	return fmt.Sprintf("%-8s%-3.3s", name[:min(len(name), 8-len(tail))]+tail, extension)
}

// longEntries are the entries with the long name, which come before the short one.
func longEntries(name, short string) ([]byte, error) {
	units := utf16.Encode([]rune(name))
	// Control characters, invalid UTF-8, the padding after a name, and characters with a meaning in FAT.
	forbidden := func(r rune) bool {
		return r < 0x20 || r == 0x7f || r >= 0xfffd && r <= 0xffff || strings.ContainsRune(`"*/:<>?\|`, r)
	}
	if len(units) == 0 || len(units) > maxUnits || strings.ContainsFunc(name, forbidden) ||
		strings.HasSuffix(name, ".") || strings.HasSuffix(name, " ") || strings.HasPrefix(name, " ") {
		return nil, fmt.Errorf("FAT cannot hold a file of this name")
	}
	sum := aliasSum([]byte(short))
	parts := (len(units) + longUnits - 1) / longUnits
	raw := make([]byte, 0, parts*entrySize)
	for part := parts; part > 0; part-- {
		e := make([]byte, entrySize)
		e[0], e[11], e[13] = byte(part), attrLong, sum
		if part == parts {
			e[0] |= 0x40
		}
		for i, offset := range [longUnits]int{1, 3, 5, 7, 9, 14, 16, 18, 20, 22, 24, 28, 30} {
			unit := uint16(0xffff)
			if at := (part-1)*longUnits + i; at < len(units) {
				unit = units[at]
			} else if at == len(units) {
				unit = 0
			}
			binary.LittleEndian.PutUint16(e[offset:], unit)
		}
		raw = append(raw, e...)
	}
	return raw, nil
}

// aliasSum is the checksum by which a long name belongs to its short one.
func aliasSum(short []byte) (sum byte) {
	for _, c := range short {
		sum = sum>>1 | sum<<7
		sum += c
	}
	return sum
}

// folderSize is the size in bytes of a folder other than the topmost.
func folderSize(nodes []Node) int64 {
	entries := 2
	for _, node := range nodes {
		entries += 1 + (len(utf16.Encode([]rune(node.Name)))+longUnits-1)/longUnits
	}
	return int64(entries) * entrySize
}
