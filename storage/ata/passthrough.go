package ata

import (
	"encoding/binary"

	"ironroot/storage/scsi"
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
	} else {
		count &= 0xff
	}
	binary.BigEndian.PutUint16(cdb[3:], c.feature)
	binary.BigEndian.PutUint16(cdb[5:], count)
	for i, at := range lbaOrder {
		cdb[7+at] = byte(c.lba >> (8 * i))
	}
	cdb[13], cdb[14] = c.device, c.opcode
	return cdb
}

// lbaOrder has the places of the bytes of an LBA, from the lowest, in a CDB and in a descriptor: 31:24, 7:0, 39:32,
// 15:8, 47:40, 23:16.
var lbaOrder = [6]int{1, 3, 5, 0, 2, 4}

// informationValid is VALID of the fixed format of sense data: INFORMATION has the registers.
const informationValid = 1 << 7

const (
	descriptorATA     = 0x09 // ATA Status Return
	descriptorATASize = 14   // bytes, with its header
)

// result returns the registers of a reply, nil if there are none, or the error of the command.
func result(r scsi.Reply, name string) (*Registers, error) {
	sense, err := r.Result(name)
	if err != nil || sense == nil {
		return nil, err
	}
	registers := registersOf(*sense)
	failed := sense.Key != scsi.KeyNoSense && sense.Key != scsi.KeyRecovered
	if registers != nil && registers.Status&(statusError|statusDeviceFail) != 0 {
		failed = true
	}
	if failed {
		return nil, &CommandError{name, registers, sense.Key, sense.ASC, sense.ASCQ}
	}
	return registers, nil
}

// registersOf returns the registers in the sense data of a pass-through command, nil if there are none (SAT-4, tables
// "ATA Status Return sense data descriptor" and "Fixed format sense data INFORMATION field" and "... COMMAND-SPECIFIC
// INFORMATION field"). Linux builds the data in ata_scsi_set_passthru_sense_fields of drivers/ata/libata-scsi.c: as
// descriptors if the command succeeded, otherwise in the fixed format unless the drive's control mode page has D_SENSE.
func registersOf(s scsi.Sense) *Registers {
	if data := s.Fixed; data != nil {
		if data[0]&informationValid == 0 || data[4] == 0 {
			return nil
		}
		return &Registers{
			Error: data[3], Status: data[4], Device: data[5], Count: uint16(data[6]), Short: true,
			LBA: uint64(data[9]) | uint64(data[10])<<8 | uint64(data[11])<<16,
		}
	}
	if d := s.Descriptor(descriptorATA, descriptorATASize); d != nil {
		return parseRegisters(d)
	}
	return nil
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
