package bootloader

import (
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"slices"
	"strings"
	"unicode/utf16"

	"ironroot/internal/ondisk"
	"ironroot/storage/partition"
)

const loadOptionActive = 1 // LOAD_OPTION_ACTIVE

// loadOption is EFI_LOAD_OPTION (UEFI 2.10, 3.1.3) with the only device path that is written here: a hard drive node,
// a file path node and the end.
type loadOption struct {
	Attributes   uint32
	Description  string
	Disk         hardDriveNode
	File         string // with backslashes
	OptionalData []byte // for the loader; parseLoadOption does not set it
}

// hardDriveNode is the body of the hard drive media device path (10.3.5.1), all numbers in little endian.
type hardDriveNode struct {
	Number        uint32
	Start, Size   uint64   // in sectors
	Signature     [16]byte // GPT: the partition's GUID; MBR: the disk id in the first four bytes
	Format        byte     // 1 MBR, 2 GPT
	SignatureType byte     // 1 MBR disk id, 2 GUID
}

const (
	nodeMedia, nodeEnd             = 4, 0x7f
	mediaHardDrive, mediaFile      = 1, 4
	endEntire                      = 0xff
	hardDriveLength                = 42
	maxOptionSize                  = 64 << 10
	formatMBR, formatGPT      byte = 1, 2
)

func hardDrive(table *partition.Table, p partition.Partition) hardDriveNode {
	node := hardDriveNode{
		Number: uint32(p.Number), Start: uint64(p.Start / table.SectorSize), Size: uint64(p.Size / table.SectorSize),
	}
	if table.Scheme == partition.MBR {
		node.Format, node.SignatureType = formatMBR, 1
		binary.LittleEndian.PutUint32(node.Signature[:], table.DiskID)
		return node
	}
	node.Format, node.SignatureType = formatGPT, 2
	raw, err := hex.DecodeString(strings.ReplaceAll(p.UUID, "-", ""))
	if err == nil && len(raw) == 16 {
		// A GUID's first three fields are little-endian.
		binary.LittleEndian.PutUint32(node.Signature[0:], binary.BigEndian.Uint32(raw[0:]))
		binary.LittleEndian.PutUint16(node.Signature[4:], binary.BigEndian.Uint16(raw[4:]))
		binary.LittleEndian.PutUint16(node.Signature[6:], binary.BigEndian.Uint16(raw[6:]))
		copy(node.Signature[8:], raw[8:])
	}
	return node
}

// encode returns the option as the content of a Boot#### variable.
func (o loadOption) encode() []byte {
	le, file := binary.LittleEndian, utf16z(o.File)
	path := le.AppendUint16([]byte{nodeMedia, mediaHardDrive}, hardDriveLength)
	path = ondisk.Append(path, le, o.Disk)
	path = le.AppendUint16(append(path, nodeMedia, mediaFile), uint16(4+len(file)))
	path = append(path, file...)
	path = le.AppendUint16(append(path, nodeEnd, endEntire), 4)

	out := le.AppendUint32(nil, o.Attributes)
	out = le.AppendUint16(out, uint16(len(path)))
	out = append(out, utf16z(o.Description)...)
	return slices.Concat(out, path, o.OptionalData)
}

// parseLoadOption parses any load option. Disk and File stay empty if its device path is of another kind.
func parseLoadOption(data []byte) (loadOption, error) {
	var o loadOption
	var path []byte
	var err error
	if o.Attributes, o.Description, path, err = splitLoadOption(data); err != nil {
		return loadOption{}, err
	}
	return o, o.parsePath(path)
}

// splitLoadOption returns the parts of any load option; path holds its encoded device paths.
func splitLoadOption(data []byte) (attributes uint32, description string, path []byte, err error) {
	if len(data) < 6 || len(data) > maxOptionSize {
		return 0, "", nil, fmt.Errorf("load option of %d bytes", len(data))
	}
	pathLength := int(binary.LittleEndian.Uint16(data[4:]))
	description, rest, err := cutUTF16z(data[6:])
	if err != nil {
		return 0, "", nil, fmt.Errorf("load option description: %w", err)
	}
	if pathLength > len(rest) {
		return 0, "", nil, fmt.Errorf("load option has a device path of %d bytes in %d", pathLength, len(rest))
	}
	return binary.LittleEndian.Uint32(data), description, rest[:pathLength], nil
}

func (o *loadOption) parsePath(path []byte) error {
	for len(path) >= 4 {
		length := int(binary.LittleEndian.Uint16(path[2:]))
		if length < 4 || length > len(path) {
			return fmt.Errorf("device path node of %d bytes in %d", length, len(path))
		}
		body := path[4:length]
		switch {
		case path[0] == nodeEnd:
			return nil
		case path[0] == nodeMedia && path[1] == mediaHardDrive && length == hardDriveLength:
			o.Disk = parseHardDrive(body)
		case path[0] == nodeMedia && path[1] == mediaFile:
			file, _, err := cutUTF16z(body)
			if err != nil {
				return fmt.Errorf("file path node: %w", err)
			}
			o.File = file
		}
		path = path[length:]
	}
	return nil
}

// parseHardDrive parses the body of a hard drive node, which must have its full length.
func parseHardDrive(body []byte) hardDriveNode {
	return ondisk.Decode[hardDriveNode](body, binary.LittleEndian)
}

// utf16z encodes text as little-endian UTF-16 with a final null.
func utf16z(text string) []byte {
	return append(utf16le(text), 0, 0)
}

// utf16le encodes text as little-endian UTF-16.
func utf16le(text string) (out []byte) {
	for _, unit := range utf16.Encode([]rune(text)) {
		out = binary.LittleEndian.AppendUint16(out, unit)
	}
	return out
}

// cutUTF16z decodes text up to the final null and returns the data after it.
func cutUTF16z(data []byte) (text string, rest []byte, err error) {
	var units []uint16
	for i := 0; i+1 < len(data); i += 2 {
		unit := binary.LittleEndian.Uint16(data[i:])
		if unit == 0 {
			return string(utf16.Decode(units)), data[i+2:], nil
		}
		units = append(units, unit)
	}
	return "", nil, errors.New("UTF-16 text without an end")
}
