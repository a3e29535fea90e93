package ata

import (
	"encoding/binary"
	"errors"
	"fmt"
)

// Commands that report the largest address of a drive. They change nothing. READ NATIVE MAX ADDRESS (EXT) and DEVICE
// CONFIGURATION IDENTIFY are commands of ACS-2, which later revisions have made obsolete; GET NATIVE MAX ADDRESS EXT
// replaces READ NATIVE MAX ADDRESS. They are ATA_CMD_READ_NATIVE_MAX, ATA_CMD_READ_NATIVE_MAX_EXT and
// ATA_CMD_CONF_OVERLAY in Linux's include/linux/ata.h.
const (
	opReadNativeMax    = 0xf8
	opReadNativeMaxExt = 0x27
	opNativeMaxExt     = 0x78 // Accessible Max Address Configuration, FEATURE 0000h: GET NATIVE MAX ADDRESS EXT
	opConfiguration    = 0xb1 // Device Configuration Overlay

	configurationIdentify = 0xc2 // FEATURE

	deviceLBA = 1 << 6 // of the DEVICE register: LBA holds an address
)

// Capacity describes which addresses a drive has now, and which features can hide others.
type Capacity struct {
	Sectors     uint64 // that can be addressed now; 0 if the drive does not say
	SectorBytes int64  // of a logical sector; 0 if Sectors is
	Extended    bool   // supports 48-bit addresses
	// Features that can reduce the number of sectors: Host Protected Area, Device Configuration Overlay, and Accessible
	// Max Address Configuration, which replaces both.
	HPA, DCO, AMAC bool
}

const (
	maxSectors     = 1 << 48
	maxSectorBytes = 1 << 14 // so that a capacity fits into 63 bits
)

// parseCapacity decodes the words of IDENTIFY DEVICE that describe the capacity (ACS-2 and ACS-4, table "IDENTIFY
// DEVICE data"): 60 and 61 sectors of 28-bit addresses, 69 and 230 to 233 sectors of more than 48 bits, 82 HPA, 83
// 48-bit addresses and DCO, 100 to 103 sectors of 48-bit addresses, 106 with 117 and 118 bytes of a sector, 119 AMAC.
func parseCapacity(word func(int) uint16) Capacity {
	number := func(first, count int) uint64 {
		value := uint64(0)
		for i := range count {
			value |= uint64(word(first+i)) << (16 * i)
		}
		return value
	}
	c := Capacity{
		HPA: word(82)&(1<<10) != 0, Extended: word(83)&(1<<10) != 0, DCO: word(83)&(1<<11) != 0,
		AMAC: word(119)&0xc000 == 0x4000 && word(119)&(1<<8) != 0,
	}
	sectors := number(60, 2)
	if c.Extended {
		sectors = number(100, 4)
	}
	if c.Extended && word(69)&(1<<3) != 0 {
		sectors = number(230, 4)
	}
	size := int64(512)
	if word(106)&0xd000 == 0x5000 { // the word is valid, and sectors are longer than 512 bytes
		size = 2 * int64(number(117, 2))
	}
	if sectors > 0 && sectors < maxSectors && size >= 512 && size <= maxSectorBytes {
		c.Sectors, c.SectorBytes = sectors, size
	}
	return c
}

// ReadNativeMax reads the largest address of a drive with the feature HPA, regardless of a host protected area (ACS-2,
// tables "READ NATIVE MAX ADDRESS command inputs" and "READ NATIVE MAX ADDRESS EXT command inputs"). The command
// with 28-bit addresses returns LBA 27:24 in DEVICE 3:0.
func (d Drive) ReadNativeMax(extended bool) (uint64, error) {
	if extended {
		return d.nativeMax(command{
			name: "READ NATIVE MAX ADDRESS EXT", opcode: opReadNativeMaxExt, extended: true, device: deviceLBA,
		})
	}
	return d.nativeMax(command{name: "READ NATIVE MAX ADDRESS", opcode: opReadNativeMax, device: deviceLBA})
}

// GetNativeMax reads the largest address of a drive with the feature AMAC, regardless of the accessible max address
// (ACS-4, table "GET NATIVE MAX ADDRESS EXT command inputs").
func (d Drive) GetNativeMax() (uint64, error) {
	return d.nativeMax(command{
		name: "GET NATIVE MAX ADDRESS EXT", opcode: opNativeMaxExt, extended: true, device: deviceLBA,
	})
}

func (d Drive) nativeMax(c command) (uint64, error) {
	r, err := d.run(c)
	switch {
	case err != nil:
		return 0, err
	case r == nil || c.extended && r.Short:
		return 0, fmt.Errorf("%s: %w", c.name, ErrNoRegisters)
	case c.extended:
		return r.LBA, nil
	}
	return r.LBA&0xffffff | uint64(r.Device&0x0f)<<24, nil
}

// ConfiguredMax reads the largest address that a drive with the feature DCO has without an overlay, by DEVICE
// CONFIGURATION IDENTIFY. Drives reject the command after DEVICE CONFIGURATION FREEZE LOCK, and while they are locked.
func (d Drive) ConfiguredMax() (uint64, error) {
	const name = "DEVICE CONFIGURATION IDENTIFY"
	data := make([]byte, blockSize)
	_, err := d.run(command{name: name, opcode: opConfiguration, feature: configurationIdentify, data: data})
	if err != nil {
		return 0, err
	}
	largest, err := parseConfiguration(data)
	if err != nil {
		return 0, fmt.Errorf("%s: %w", name, err)
	}
	return largest, nil
}

// parseConfiguration decodes the data of DEVICE CONFIGURATION IDENTIFY (ACS-2, table "DEVICE CONFIGURATION IDENTIFY
// data structure"): words 3 to 6 have the largest address, word 255 a signature and a checksum, which make all bytes
// sum to zero.
func parseConfiguration(data []byte) (uint64, error) {
	if len(data) != blockSize {
		return 0, fmt.Errorf("got %d bytes, want %d", len(data), blockSize)
	}
	sum := byte(0)
	for _, b := range data {
		sum += b
	}
	if data[510] != integritySignature || sum != 0 {
		return 0, errors.New("wrong checksum")
	}
	largest := binary.LittleEndian.Uint64(data[6:])
	if largest >= maxSectors {
		return 0, fmt.Errorf("got address %d, want less than %d", largest, uint64(maxSectors))
	}
	return largest, nil
}
