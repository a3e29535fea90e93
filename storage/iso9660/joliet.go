package iso9660

import (
	"encoding/binary"
	"slices"
	"strings"
	"unicode/utf16"
)

// isJoliet reports whether a supplementary volume descriptor belongs to Joliet, by its escape sequence for UCS-2
// (Joliet Specification, "SVD Escape Sequences").
func isJoliet(descriptor []byte) bool {
	return slices.Contains([]string{"%/@", "%/C", "%/E"}, string(descriptor[88:91]))
}

// jolietName converts a Joliet name, "Read me.txt;1" in UTF-16, to the name in a mounted file system, "Read me.txt".
func jolietName(raw string) string {
	units := make([]uint16, len(raw)/2)
	for i := range units {
		units[i] = binary.BigEndian.Uint16([]byte(raw[2*i:]))
	}
	return strings.TrimSuffix(strings.TrimSuffix(string(utf16.Decode(units)), ";1"), ".")
}
