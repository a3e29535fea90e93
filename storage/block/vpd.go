package block

import (
	"encoding/binary"
	"encoding/hex"
	"strings"
)

// vpdSerial reads the unit serial number page (SPC-4, 7.8.15).
func vpdSerial(page []byte) string {
	body, ok := vpdBody(page, 0x80)
	if !ok {
		return ""
	}
	return strings.Join(strings.Fields(printable(body)), " ")
}

const (
	codeSetBinary, codeSetASCII                     = 1, 2
	typeVendorSpecific, typeT10, typeEUI64, typeNAA = 0, 1, 2, 3
)

// vpdNAA reads the device identification page (SPC-4, 7.8.6) and returns the logical unit's NAA identifier in hex
// digits, the longest one where there are several.
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

// vpdEUI64 returns the logical unit's identifier based on an EUI-64 (SPC-4, 7.8.6.5) in hex digits, the longest one where
// there are several.
func vpdEUI64(page []byte) string {
	best := ""
	for _, d := range lunDesignators(page) {
		length := len(d.identifier)
		if d.codeSet == codeSetBinary && d.kind == typeEUI64 && (length == 8 || length == 12 || length == 16) {
			if text := hex.EncodeToString(d.identifier); len(text) > len(best) {
				best = text
			}
		}
	}
	return best
}

// vpdVendorSpecific returns the logical unit's identifier of the vendor's own form, in ASCII, from a device
// identification page without any better one: QEMU's name of a disk.
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

// designator is one entry of the device identification page.
type designator struct {
	codeSet, kind byte
	identifier    []byte
}

// lunDesignators returns those of the logical unit itself, without ports and targets.
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

// ataInformation is what a disk says of itself in IDENTIFY DEVICE (ACS-3, 7.12).
type ataInformation struct{ Model, Serial, WWN string }

// parseATAInformation reads the ATA information page (SAT-3, 12.4.2), in which a SATA disk's IDENTIFY data stand.
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

// ataString reads the words first to last, whose two bytes are swapped.
func ataString(identify []byte, first, last int) string {
	var raw []byte
	for n := first; n <= last; n++ {
		raw = append(raw, identify[2*n+1], identify[2*n])
	}
	return strings.Join(strings.Fields(printable(raw)), " ")
}

// vpdBody checks a page's code and returns what follows its four-byte header.
func vpdBody(page []byte, code byte) ([]byte, bool) {
	if len(page) < 4 || page[1] != code {
		return nil, false
	}
	length := int(binary.BigEndian.Uint16(page[2:]))
	return page[4:min(len(page), 4+length)], true
}

// printable replaces what a disk has no business to put into a name.
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
