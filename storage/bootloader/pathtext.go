package bootloader

import (
	"encoding/binary"
	"fmt"
)

// pathText formats a device path as text (UEFI 2.10, 10.6): nodes separated by slashes, and a comma before each
// further instance. Kinds of nodes with many fields are formatted as their name and bytes, rare kinds in the general
// form Path(type,subtype,bytes).
func pathText(path []byte) (string, error) {
	var text []byte
	separator := ""
	for len(path) >= 4 {
		length := int(binary.LittleEndian.Uint16(path[2:]))
		if length < 4 || length > len(path) {
			return "", fmt.Errorf("device path node of %d bytes in %d", length, len(path))
		}
		switch {
		case path[0] != nodeEnd:
			text = append(text, separator+nodeText(binary.BigEndian.Uint16(path), path[4:length])...)
			separator = "/"
		case path[1] == endEntire:
			return string(text), nil
		default:
			separator = ","
		}
		path = path[length:]
	}
	return string(text), nil
}

// nodeText formats a node. kind is its type and subtype; body is the data after its length.
func nodeText(kind uint16, body []byte) string {
	const pciRoot = 0x0a0341d0 // PNP0A03
	switch n := len(body); {
	case kind == nodeMedia<<8|mediaHardDrive && n == hardDriveLength-4:
		return parseHardDrive(body).text()
	case kind == nodeMedia<<8|mediaFile:
		if file, _, err := cutUTF16z(body); err == nil {
			return "File(" + file + ")"
		}
	case kind == 0x0101 && n == 2:
		return fmt.Sprintf("Pci(0x%x,0x%x)", body[1], body[0])
	case kind == 0x0201 && n == 8 && binary.LittleEndian.Uint32(body) == pciRoot:
		return fmt.Sprintf("PciRoot(0x%x)", binary.LittleEndian.Uint32(body[4:]))
	case kind == 0x030b && n == 33:
		return fmt.Sprintf("MAC(%x,%d)", body[:6], body[32])
	case kind == 0x0318:
		return "Uri(" + string(body) + ")"
	}
	name, hasGUID := nodeName(kind)
	switch {
	case name == "":
		return fmt.Sprintf("Path(%d,%d,%x)", kind>>8, kind&0xff, body)
	case !hasGUID || len(body) < 16:
		return fmt.Sprintf("%s(%x)", name, body)
	case len(body) == 16:
		return name + "(" + guidText(body) + ")"
	}
	return fmt.Sprintf("%s(%s,%x)", name, guidText(body), body[16:])
}

// nodeName returns the name of a kind of node, and whether its body starts with a GUID.
func nodeName(kind uint16) (name string, hasGUID bool) {
	switch kind {
	case 0x0104:
		return "VenHw", true
	case 0x030a:
		return "VenMsg", true
	case 0x0403:
		return "VenMedia", true
	case 0x0406:
		return "FvFile", true
	case 0x0407:
		return "FvVol", true
	case 0x0302:
		return "SCSI", false
	case 0x0305:
		return "USB", false
	case 0x030c:
		return "IPv4", false
	case 0x030d:
		return "IPv6", false
	case 0x030f:
		return "UsbClass", false
	case 0x0312:
		return "Sata", false
	case 0x0317:
		return "NVMe", false
	case 0x0402:
		return "CDROM", false
	case 0x0501:
		return "BBS", false
	}
	return "", false
}

// guidText formats a GUID, whose first three fields are little-endian.
func guidText(g []byte) string {
	return fmt.Sprintf("%08x-%04x-%04x-%x-%x", binary.LittleEndian.Uint32(g), binary.LittleEndian.Uint16(g[4:]),
		binary.LittleEndian.Uint16(g[6:]), g[8:10], g[10:16])
}

func (n hardDriveNode) text() string {
	scheme, id := "GPT", guidText(n.Signature[:])
	if n.Format == formatMBR {
		scheme, id = "MBR", fmt.Sprintf("0x%x", binary.LittleEndian.Uint32(n.Signature[:]))
	}
	return fmt.Sprintf("HD(%d,%s,%s,0x%x,0x%x)", n.Number, scheme, id, n.Start, n.Size)
}
