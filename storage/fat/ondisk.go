package fat

import (
	"encoding/binary"

	"ironroot/internal/ondisk"
)

// The structures on the medium, in the order and with the names of Microsoft's specification 1.03. All numbers are
// little endian.

const (
	sectorSize    = 512 // bytes of the boot sector and the information sector that are used, for any sector size
	bootSignature = 0xaa55
	extended      = 0x29 // serial number, label and type follow
	fixedDisk     = 0x80
	fixedMedia    = 0xf8
	infoLead      = 0x41615252 // "RRaA"
	infoStruct    = 0x61417272 // "rrAa"
)

// parameters is the BIOS parameter block that all types of FAT share (section 3.1), with the bytes before it.
type parameters struct {
	Jump              [3]byte
	OEMName           [8]byte
	SectorSize        uint16 // bytes
	SectorsPerCluster uint8
	ReservedSectors   uint16
	FATs              uint8
	RootEntries       uint16
	Sectors16         uint16 // 0: Sectors32 has the number
	Media             uint8
	FATSectors16      uint16 // 0: FATSectors32 has the number
	SectorsPerTrack   uint16
	Heads             uint16
	HiddenSectors     uint32
	Sectors32         uint32
}

// parameters32 follows parameters in FAT32 (section 3.3).
type parameters32 struct {
	FATSectors32 uint32
	Flags        uint16
	Version      uint16
	RootCluster  uint32
	InfoSector   uint16
	BackupSector uint16
	_            [12]byte
}

// identity is the extended boot record, which follows last (sections 3.2 and 3.3).
type identity struct {
	Drive     uint8
	_         uint8
	Signature uint8
	Serial    uint32
	Label     [11]byte
	Type      [8]byte // informative; the type depends on the number of clusters
}

// bootSector16 is the boot sector of FAT12 and FAT16.
type bootSector16 struct {
	Parameters parameters
	Identity   identity
	Code       [448]byte
	Signature  uint16
}

// bootSector32 is the boot sector of FAT32.
type bootSector32 struct {
	Parameters   parameters
	Parameters32 parameters32
	Identity     identity
	Code         [420]byte
	Signature    uint16
}

// infoSector is the FSInfo sector of FAT32 (section 5).
type infoSector struct {
	Lead      uint32
	_         [480]byte
	Structure uint32
	Free      uint32 // clusters
	Next      uint32 // cluster at which the search for a free one starts
	_         [12]byte
	_         uint16
	Signature uint16
}

// shortEntry is an entry of a directory (section 6).
type shortEntry struct {
	Name          [11]byte
	Attributes    uint8
	Case          uint8 // Windows NT: 0x08 and 0x10 mean that base and extension are in lower case
	CreatedTenths uint8
	CreatedTime   uint16
	CreatedDate   uint16
	AccessedDate  uint16
	ClusterHigh   uint16 // FAT32
	WrittenTime   uint16
	WrittenDate   uint16
	ClusterLow    uint16
	Size          uint32 // bytes; 0 for directories
}

// longEntry is a part of a long name (section 7).
type longEntry struct {
	Order      uint8 // from 1; the last part, which comes first, has lastPart added
	Name1      [5]uint16
	Attributes uint8
	Type       uint8
	Checksum   uint8 // of the short name
	Name2      [6]uint16
	ClusterLow uint16
	Name3      [2]uint16
}

// decode decodes a structure from the start of raw, which must be long enough.
func decode[T any](raw []byte) T { return ondisk.Decode[T](raw, binary.LittleEndian) }

// encode returns the bytes of a structure, padded with zeros to size.
func encode(structure any, size int) []byte {
	raw := make([]byte, size)
	ondisk.Encode(raw, binary.LittleEndian, structure)
	return raw
}
