package ondisk

// MBR is a master boot record as UEFI 2.10, table 5.1 has it, all numbers in little endian.
type MBR struct {
	Code      [440]byte
	DiskID    uint32
	Unknown   uint16
	Entries   [4]MBREntry
	Signature uint16
}

// MBREntry is an entry of the partition table (table 5.2).
type MBREntry struct {
	Status   uint8
	StartCHS [3]byte
	Type     uint8
	EndCHS   [3]byte
	Start    uint32 // sector
	Sectors  uint32
}
