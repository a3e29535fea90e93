package fat

import (
	"fmt"
	"slices"
	"strings"
	"time"
	"unicode/utf16"
)

const (
	attrArchive = 0x20
	longUnits   = 13   // UTF-16 units of a name in one entry
	maxUnits    = 255  // of a name
	lastPart    = 0x40 // flag of the last part, added to its number
	partNumber  = 0x1f
)

// day returns a date in the form of directory entries.
func day(t time.Time) uint16 {
	if t.IsZero() {
		t = time.Date(1980, 1, 1, 0, 0, 0, 0, time.UTC)
	}
	return uint16((t.Year()-1980)<<9 | int(t.Month())<<5 | t.Day())
}

// entry returns the short entry of a directory.
func (f *writer) entry(short [11]byte, attributes byte, first, size uint32) []byte {
	return encode(shortEntry{
		Name: short, Attributes: attributes, CreatedDate: f.day, AccessedDate: f.day, WrittenDate: f.day,
		ClusterHigh: uint16(first >> 16), ClusterLow: uint16(first), Size: size,
	}, entrySize)
}

// labelField returns a label or short name in the form of directory entries: truncated, or padded with spaces.
func labelField(label string) [11]byte { return [11]byte(fmt.Appendf(nil, "%-11.11s", label)) }

// shortName returns a name in the form of a short entry, and reports whether it needs no long name. Aliases contain a
// "~", unlike such names.
func (f *writer) shortName(name string) (short [11]byte, isWhole bool) {
	special := func(r rune) bool { return (r < 'A' || r > 'Z') && (r < '0' || r > '9') && r != '_' && r != '-' }
	base, extension, hasDot := strings.Cut(name, ".")
	if !f.short || base == "" || len(base) > 8 || len(extension) > 3 || hasDot && extension == "" ||
		strings.ContainsFunc(base+extension, special) {
		return short, false
	}
	return labelField(fmt.Sprintf("%-8s%s", base, extension)), true
}

// shortAlias returns a short name that is unique for its number: "META_D~1JSO".
func shortAlias(name string, number int) [11]byte {
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
	return labelField(fmt.Sprintf("%-8s%s", name[:min(len(name), 8-len(tail))]+tail, extension))
}

// longEntries returns the entries with the long name, which precede the short one.
func longEntries(name string, short [11]byte) ([]byte, error) {
	units := utf16.Encode([]rune(name))
	// Control characters, invalid UTF-8, the padding after a name, and characters with a meaning in FAT.
	forbidden := func(r rune) bool {
		return r < 0x20 || r == 0x7f || r >= 0xfffd && r <= 0xffff || strings.ContainsRune(`"*/:<>?\|`, r)
	}
	if len(units) == 0 || len(units) > maxUnits || strings.ContainsFunc(name, forbidden) ||
		strings.HasSuffix(name, ".") || strings.HasSuffix(name, " ") || strings.HasPrefix(name, " ") {
		return nil, fmt.Errorf("FAT cannot hold a file of this name")
	}
	parts := (len(units) + longUnits - 1) / longUnits
	if len(units)%longUnits != 0 {
		units = append(units, 0) // end of the name; padding follows
	}
	for len(units) < parts*longUnits {
		units = append(units, 0xffff)
	}
	raw := make([]byte, 0, parts*entrySize)
	for part := parts; part > 0; part-- {
		e := longEntry{Order: byte(part), Attributes: attrLong, Checksum: aliasSum(short)}
		if part == parts {
			e.Order |= lastPart
		}
		e.setUnits(units[(part-1)*longUnits:])
		raw = append(raw, encode(e, entrySize)...)
	}
	return raw, nil
}

func (e *longEntry) setUnits(units []uint16) {
	n := copy(e.Name1[:], units)
	n += copy(e.Name2[:], units[n:])
	copy(e.Name3[:], units[n:])
}

func (e *longEntry) units() []uint16 { return slices.Concat(e.Name1[:], e.Name2[:], e.Name3[:]) }

// aliasSum returns the checksum of a short name in the entries of its long name.
func aliasSum(short [11]byte) (sum byte) {
	for _, c := range short {
		sum = sum>>1 | sum<<7
		sum += c
	}
	return sum
}

// dirSize returns the size in bytes of a directory other than the root.
func (f *writer) dirSize(nodes []Node) int64 {
	entries := 2
	for _, node := range nodes {
		entries++
		if _, isWhole := f.shortName(node.Name); !isWhole {
			entries += (len(utf16.Encode([]rune(node.Name))) + longUnits - 1) / longUnits
		}
	}
	return int64(entries) * entrySize
}
