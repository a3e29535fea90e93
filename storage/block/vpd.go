package block

import (
	"bytes"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"fmt"
	"strings"
)

// vpdSerial returns the serial number of a unit serial number page (SPC-4, 7.8.15).
func vpdSerial(page []byte) string {
	body, ok := vpdBody(page, 0x80)
	if !ok {
		return ""
	}
	return strings.Join(strings.Fields(printable(body)), " ")
}

const (
	codeSetBinary, codeSetASCII, codeSetUTF8        = 1, 2, 3
	typeVendorSpecific, typeT10, typeEUI64, typeNAA = 0, 1, 2, 3
	typeSCSIName, typeUUID                          = 8, 10

	minUnitSerial = 4 // minimum length of a serial number that makes a T10 designator unique
	maxUnitID     = 96
)

// vpdNAA returns the logical unit's NAA identifier in a device identification page (SPC-4, 7.8.6) in hex digits, the
// longest if there are several.
func vpdNAA(page []byte) string {
	best := ""
	for _, d := range lunDesignators(page) {
		if d.codeSet == codeSetBinary && d.kind == typeNAA && (len(d.identifier) == 8 || len(d.identifier) == 16) {
			if text := hex.EncodeToString(d.identifier); len(text) > len(best) {
				best = text
			}
		}
	}
	return best
}

// vpdUnitID returns the globally unique designator of the logical unit in the form of scsi_id(8) and multipathd: the
// digit of its type and the identifier. If there are several, it returns the first in multipathd's order: NAA, SCSI
// name string, UUID, EUI-64, T10 vendor ID. serial is the unit serial number. It returns "" if no designator is
// unique. Not unique are a locally assigned NAA identifier, an identifier whose digits are all zeros or all f, and a
// T10 designator without the serial number, which SPC-4 (7.8.6.4) recommends to include. Two iSCSI targets of the same
// software can have equal ones.
func vpdUnitID(page []byte, serial string) string {
	best, bestRank := "", 0
	for _, d := range lunDesignators(page) {
		if id, rank := d.unitID(serial); rank > bestRank {
			best, bestRank = id, rank
		}
	}
	if len(best) > maxUnitID { // the device mapper limits names and UUIDs to 127 bytes
		best = fmt.Sprintf("%c%x", best[0], sha256.Sum256([]byte(best[1:])))
	}
	return strings.ReplaceAll(best, "/", "_") // valid as a name in /dev/mapper
}

// unitID returns the designator in the form of vpdUnitID, and its rank. Rank 0 means that it is not unique or invalid.
func (d designator) unitID(serial string) (id string, rank int) {
	length, text := len(d.identifier), strings.Join(strings.Fields(printable(d.identifier)), "_")
	switch {
	case d.kind == typeNAA && d.codeSet == codeSetBinary && (length == 8 || length == 16):
		ranks := map[byte]int{6: 10, 5: 9, 2: 8}
		id = hex.EncodeToString(d.identifier)
		if isBlank(id[1:]) {
			return "", 0
		}
		return "3" + id, ranks[d.identifier[0]>>4]
	case d.kind == typeSCSIName && d.codeSet == codeSetUTF8:
		return scsiName(d.identifier)
	case d.kind == typeUUID && d.codeSet == codeSetBinary && length == 18 && d.identifier[0]>>4 == 1:
		return "a" + hex.EncodeToString(d.identifier[2:]), 6
	case d.kind == typeEUI64 && d.codeSet == codeSetBinary && (length == 8 || length == 12 || length == 16):
		id = hex.EncodeToString(d.identifier)
		if isBlank(id) {
			return "", 0
		}
		return "2" + id, 1 + length/4 // 3 to 5, longer is better
	case d.kind == typeT10 && len(serial) >= minUnitSerial &&
		strings.Contains(text, strings.Join(strings.Fields(serial), "_")):
		return "1" + text, 1
	}
	return "", 0
}

// isBlank reports whether the hex digits of an identifier are all 0 or all f, as in firmware without an assigned one.
func isBlank(digits string) bool {
	return strings.Trim(digits, "0") == "" || strings.Trim(digits, "f") == ""
}

// scsiName parses a zero-terminated SCSI name string (SPC-4, 7.8.6.11): an NAA or EUI-64 identifier in hexadecimal
// digits, or the iSCSI name of the unit.
func scsiName(identifier []byte) (id string, rank int) {
	const rankOfNames = 7
	raw, _, _ := bytes.Cut(identifier, []byte{0})
	name := strings.ToLower(string(raw))
	kind, rest, _ := strings.Cut(name, ".")
	switch {
	case (kind == "naa" || kind == "eui") && isHex(rest) && isBlank(rest[1:]):
	case kind == "naa" && isHex(rest) && rest[0] != '3' && (len(rest) == 16 || len(rest) == 32):
		return "3" + rest, rankOfNames
	case kind == "eui" && isHex(rest) && (len(rest) == 16 || len(rest) == 24 || len(rest) == 32):
		return "2" + rest, rankOfNames
	case kind == "iqn" && rest != "" && printable(raw) == string(raw) && !strings.Contains(name, " "):
		return "8" + name, rankOfNames
	}
	return "", 0
}

// vpdVendorSpecific returns the logical unit's vendor-specific ASCII identifier in a device identification page that
// has no better one. QEMU sets it to the name of the disk.
func vpdVendorSpecific(page []byte) string {
	name := ""
	for _, d := range lunDesignators(page) {
		switch {
		case d.kind == typeT10 || d.kind == typeEUI64 || d.kind == typeNAA:
			return ""
		case d.kind == typeVendorSpecific && d.codeSet == codeSetASCII && name == "":
			name = strings.Join(strings.Fields(printable(d.identifier)), " ")
		}
	}
	return name
}

// designator is an entry of the device identification page.
type designator struct {
	codeSet, kind byte
	identifier    []byte
}

// lunDesignators returns the designators of the logical unit, without designators of ports and targets.
func lunDesignators(page []byte) []designator {
	body, ok := vpdBody(page, 0x83)
	if !ok {
		return nil
	}
	const associationLUN = 0
	var list []designator
	for len(body) >= 4 {
		end := 4 + int(body[3])
		if len(body) < end {
			break
		}
		if body[1]>>4&3 == associationLUN {
			list = append(list, designator{body[0] & 0x0f, body[1] & 0x0f, body[4:end]})
		}
		body = body[end:]
	}
	return list
}

// ataInformation is a part of a disk's IDENTIFY DEVICE data (ACS-3, 7.12).
type ataInformation struct{ Model, Serial, WWN string }

// parseATAInformation parses the ATA information page (SAT-3, 12.4.2), which contains a SATA disk's IDENTIFY data.
func parseATAInformation(page []byte) (ataInformation, bool) {
	const identifyOffset = 60
	if len(page) < identifyOffset+512 || page[1] != 0x89 {
		return ataInformation{}, false
	}
	identify := page[identifyOffset : identifyOffset+512]
	word := func(n int) uint16 { return binary.LittleEndian.Uint16(identify[2*n:]) }
	if word(0)&0x8000 != 0 { // a packet device: not a disk
		return ataInformation{}, false
	}
	info := ataInformation{Model: ataString(identify, 27, 46), Serial: ataString(identify, 10, 19)}
	if info.Model == "" {
		return ataInformation{}, false
	}
	if word(87)&0xc100 == 0x4100 { // words 108 to 111 hold a world wide name
		var name [8]byte
		for i := range 4 {
			binary.BigEndian.PutUint16(name[2*i:], word(108+i))
		}
		info.WWN = hex.EncodeToString(name[:])
	}
	return info, true
}

// ataString returns the string in the words first to last, which have swapped bytes.
func ataString(identify []byte, first, last int) string {
	var raw []byte
	for n := first; n <= last; n++ {
		raw = append(raw, identify[2*n+1], identify[2*n])
	}
	return strings.Join(strings.Fields(printable(raw)), " ")
}

// vpdBody checks a page's code and returns the data after its four-byte header.
func vpdBody(page []byte, code byte) ([]byte, bool) {
	if len(page) < 4 || page[1] != code {
		return nil, false
	}
	length := int(binary.BigEndian.Uint16(page[2:]))
	return page[4:min(len(page), 4+length)], true
}

// printable replaces bytes that are not printable ASCII by spaces.
func printable(raw []byte) string {
	return strings.Map(func(r rune) rune {
		if r < ' ' || r > '~' {
			return ' '
		}
		return r
	}, string(raw))
}

func isHex(s string) bool {
	_, err := hex.DecodeString(s)
	return err == nil && s != ""
}
