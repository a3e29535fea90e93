package ata

import (
	"encoding/binary"
	"fmt"
)

// Values of ATA PASS-THROUGH (16) (SAT-4, tables "ATA PASS-THROUGH (16) command" and "PROTOCOL field"). Linux decodes
// them in ata_scsi_pass_thru of drivers/ata/libata-scsi.c; sg16 in hdparm's sgio.c builds the same CDB.
const (
	opPassThrough16 = 0x85

	protocolNonData = 3
	protocolPIOIn   = 4
	protocolPIOOut  = 5

	flagCheckCondition = 1 << 5 // CK_COND: return the registers also without an error
	flagFromDevice     = 1 << 3 // T_DIR
	flagBlocks         = 1 << 2 // BYTE_BLOCK: T_LENGTH counts blocks of 512 bytes (T_TYPE 0)
	flagLengthInCount  = 2      // T_LENGTH: the length is in COUNT
)

// blockSize is the size in bytes of the data of the commands in this package.
const blockSize = 512

// cdb returns the command descriptor block of ATA PASS-THROUGH (16). Commands with data have a count of blocks, as SAT
// requires; drives ignore it. Registers are requested only of commands without data: Linux drivers do not receive them
// after PIO data.
func (c command) cdb() []byte {
	cdb := make([]byte, 16)
	cdb[0] = opPassThrough16
	count := c.count
	switch {
	case c.data == nil:
		cdb[1], cdb[2] = protocolNonData<<1, flagCheckCondition
	case c.toDevice:
		cdb[1], cdb[2] = protocolPIOOut<<1, flagBlocks|flagLengthInCount
		count = uint16(len(c.data) / blockSize)
	default:
		cdb[1], cdb[2] = protocolPIOIn<<1, flagFromDevice|flagBlocks|flagLengthInCount
		count = uint16(len(c.data) / blockSize)
	}
	if c.extended {
		cdb[1] |= 1
	}
	binary.BigEndian.PutUint16(cdb[3:], c.feature)
	binary.BigEndian.PutUint16(cdb[5:], count)
	for i, at := range lbaOrder {
		cdb[7+at] = byte(c.lba >> (8 * i))
	}
	cdb[14] = c.opcode
	return cdb
}

// lbaOrder has the places of the bytes of an LBA, from the lowest, in a CDB and in a descriptor: 31:24, 7:0, 39:32,
// 15:8, 47:40, 23:16.
var lbaOrder = [6]int{1, 3, 5, 0, 2, 4}

// Sense data (SPC-5, tables "Sense key descriptions" and "Response codes").
const (
	senseFixed, senseFixedDeferred           = 0x70, 0x71
	senseDescriptor, senseDescriptorDeferred = 0x72, 0x73

	keyNoSense   = 0
	keyRecovered = 1

	informationValid = 1 << 7 // VALID of the fixed format: INFORMATION has the registers

	descriptorATA       = 0x09 // ATA Status Return
	descriptorATALength = 12
)

const (
	statusGood           = 0
	statusCheckCondition = 2
	driverSense          = 8
)

// hostResults are the results of a host adapter in Linux (include/scsi/scsi_status.h).
var hostResults = map[uint16]string{
	1: "no connection", 2: "bus busy", 3: "timed out", 4: "bad target", 5: "aborted", 7: "error of the adapter",
	8: "reset",
}

// result returns the registers of a reply, nil if there are none, or the error of the command.
func (r Reply) result(name string) (*Registers, error) {
	switch {
	case r.Host != 0:
		text := hostResults[r.Host]
		if text == "" {
			text = "unknown"
		}
		return nil, fmt.Errorf("%s: host adapter result 0x%02x (%s)", name, r.Host, text)
	case r.Driver&0x0f != 0 && r.Driver&0x0f != driverSense:
		return nil, fmt.Errorf("%s: driver result 0x%02x", name, r.Driver)
	case r.Status == statusGood:
		return nil, nil
	case r.Status != statusCheckCondition:
		return nil, fmt.Errorf("%s: SCSI status 0x%02x", name, r.Status)
	}
	sense, err := parseSense(r.Sense)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	failed := sense.key != keyNoSense && sense.key != keyRecovered
	if sense.registers != nil && sense.registers.Status&(statusError|statusDeviceFail) != 0 {
		failed = true
	}
	if failed {
		return nil, &CommandError{name, sense.registers, sense.key, sense.asc, sense.ascq}
	}
	return sense.registers, nil
}

// sense is decoded sense data.
type sense struct {
	key, asc, ascq byte
	registers      *Registers // nil if it has none
}

// parseSense decodes sense data of a pass-through command (SAT-4, tables "ATA Status Return sense data descriptor"
// and "Fixed format sense data INFORMATION field" and "... COMMAND-SPECIFIC INFORMATION field"). Linux builds it in
// ata_scsi_set_passthru_sense_fields of drivers/ata/libata-scsi.c: as descriptors if the command succeeded, otherwise
// in the fixed format unless the drive's control mode page has D_SENSE.
func parseSense(data []byte) (sense, error) {
	if len(data) < 8 {
		return sense{}, fmt.Errorf("got %d bytes of sense data, want at least 8", len(data))
	}
	end := min(len(data), 8+int(data[7]))
	switch code := data[0] & 0x7f; code {
	case senseFixed, senseFixedDeferred:
		s := sense{key: data[2] & 0x0f}
		if end <= 13 {
			return s, nil
		}
		s.asc, s.ascq = data[12], data[13]
		if data[0]&informationValid != 0 && data[4] != 0 {
			s.registers = &Registers{
				Error: data[3], Status: data[4], Device: data[5], Count: uint16(data[6]), Short: true,
				LBA: uint64(data[9]) | uint64(data[10])<<8 | uint64(data[11])<<16,
			}
		}
		return s, nil
	case senseDescriptor, senseDescriptorDeferred:
		s := sense{key: data[1] & 0x0f, asc: data[2], ascq: data[3]}
		for rest := data[8:end]; len(rest) >= 2; {
			length := 2 + int(rest[1])
			if length > len(rest) {
				break
			}
			if rest[0] == descriptorATA && rest[1] == descriptorATALength {
				s.registers = parseRegisters(rest[:length])
			}
			rest = rest[length:]
		}
		return s, nil
	default:
		return sense{}, fmt.Errorf("unknown format 0x%02x of sense data", code)
	}
}

// parseRegisters decodes an ATA Status Return descriptor of 14 bytes. Without EXTEND, it lacks the upper halves.
func parseRegisters(d []byte) *Registers {
	r := Registers{Error: d[3], Count: uint16(d[5]), Device: d[12], Status: d[13], Short: d[2]&1 == 0}
	size := 3
	if !r.Short {
		size = len(lbaOrder)
		r.Count |= uint16(d[4]) << 8
	}
	for i, at := range lbaOrder[:size] {
		r.LBA |= uint64(d[6+at]) << (8 * i)
	}
	return &r
}
