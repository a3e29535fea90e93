package partition

import (
	"crypto/rand"
	"encoding/binary"
	"encoding/hex"
	"fmt"
	"strings"
)

// guidText writes the 16 bytes of a GUID, whose first three fields are little-endian (UEFI 2.10, appendix A), in
// capitals.
func guidText(b []byte) string {
	return fmt.Sprintf("%08X-%04X-%04X-%X-%X", binary.LittleEndian.Uint32(b), binary.LittleEndian.Uint16(b[4:]),
		binary.LittleEndian.Uint16(b[6:]), b[8:10], b[10:16])
}

// putGUID is the reverse of guidText.
func putGUID(b []byte, text string) error {
	raw, err := hex.DecodeString(strings.ReplaceAll(text, "-", ""))
	if err != nil || len(raw) != 16 || len(text) != 36 {
		return fmt.Errorf("%q is no GUID", text)
	}
	binary.LittleEndian.PutUint32(b, binary.BigEndian.Uint32(raw))
	binary.LittleEndian.PutUint16(b[4:], binary.BigEndian.Uint16(raw[4:]))
	binary.LittleEndian.PutUint16(b[6:], binary.BigEndian.Uint16(raw[6:]))
	copy(b[8:16], raw[8:])
	return nil
}

// randomGUID draws a GUID of version 4 (RFC 4122).
func randomGUID(b []byte) {
	_, _ = rand.Read(b)     // never fails
	b[7] = b[7]&0x0f | 0x40 // the version, in the mixed byte order of a GUID
	b[8] = b[8]&0x3f | 0x80
}
