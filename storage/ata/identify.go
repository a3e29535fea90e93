package ata

import (
	"encoding/binary"
	"errors"
	"fmt"
	"strings"
	"time"
)

const opIdentify = 0xec // ATA_CMD_ID_ATA in Linux's include/linux/ata.h

// integritySignature is in the lower half of word 255 of data with a checksum.
const integritySignature = 0xa5

// Identity describes the features and the state of a drive that matter for an erase.
type Identity struct {
	Firmware    string // revision
	Security    SecurityState
	Sanitize    SanitizeSupport
	Trusted     bool // supports the Trusted Computing feature set
	ReportsRate bool // reports the rotation rate of its media; old hard disks do not
	Capacity    Capacity
}

// SecurityState describes the Security feature set of a drive.
type SecurityState struct {
	Supported bool
	Enabled   bool // a user password is set: the drive is locked after the next power cycle
	Locked    bool // data can be neither read nor written
	Frozen    bool // passwords cannot be changed, and the drive cannot be erased, until the next power cycle
	Expired   bool // too many attempts to unlock; until the next power cycle
	Enhanced  bool // supports the enhanced erase
	Maximum   bool // level Maximum: the master password cannot unlock the drive, only erase it
	// Durations of an erase; 0 if the drive does not say, or more than it can say.
	EraseTime, EnhancedTime time.Duration
}

// SanitizeSupport describes the commands of the Sanitize Device feature set that a drive supports.
type SanitizeSupport struct{ Supported, BlockErase, CryptoScramble, Overwrite bool }

// Identify reads the identity of the drive.
func (d Drive) Identify() (Identity, error) {
	data := make([]byte, blockSize)
	if _, err := d.run(command{name: "IDENTIFY DEVICE", opcode: opIdentify, data: data}); err != nil {
		return Identity{}, err
	}
	id, err := parseIdentity(data)
	if err != nil {
		return Identity{}, fmt.Errorf("IDENTIFY DEVICE: %w", err)
	}
	return id, nil
}

// parseIdentity decodes the data of IDENTIFY DEVICE (ACS-4, table "IDENTIFY DEVICE data"): 256 words of 16 bits. The
// words are the same as in src/ataidentify.cpp of smartmontools: 23 to 26 firmware, 48 Trusted Computing, 59 sanitize,
// 89 and 90 erase times, 128 security, 217 rotation rate, 255 integrity.
func parseIdentity(data []byte) (Identity, error) {
	if len(data) != blockSize {
		return Identity{}, fmt.Errorf("got %d bytes, want %d", len(data), blockSize)
	}
	word := func(n int) uint16 { return binary.LittleEndian.Uint16(data[2*n:]) }
	// Without data, buses read as all zeros or all ones.
	if word(0)&0x8000 != 0 || word(83)&0xc000 != 0x4000 {
		return Identity{}, fmt.Errorf("words 0 and 83 are 0x%04x and 0x%04x, not those of an ATA drive",
			word(0), word(83))
	}
	if word(255)&0xff == integritySignature {
		sum := byte(0)
		for _, b := range data {
			sum += b
		}
		if sum != 0 {
			return Identity{}, errors.New("wrong checksum")
		}
	}
	status := word(128)
	bit := func(value uint16, n int) bool { return value>>n&1 == 1 }
	id := Identity{Firmware: text(data[2*23 : 2*27]), Security: SecurityState{Supported: bit(status, 0)}}
	if id.Security.Supported {
		id.Security = SecurityState{
			Supported: true,
			Enabled:   bit(status, 1), Locked: bit(status, 2), Frozen: bit(status, 3), Expired: bit(status, 4),
			Enhanced: bit(status, 5), Maximum: bit(status, 8),
			EraseTime: eraseTime(word(89)), EnhancedTime: eraseTime(word(90)),
		}
	}
	if w := word(48); w&0xc000 == 0x4000 { // the word is valid
		id.Trusted = bit(w, 0)
	}
	const leastRate, largestRate = 0x0401, 0xfffe // rotations per minute; 0 is not reported, 1 means that none rotate
	id.ReportsRate = word(217) >= leastRate && word(217) <= largestRate
	id.Capacity = parseCapacity(word)
	if w := word(59); bit(w, 12) {
		id.Sanitize = SanitizeSupport{
			Supported: true, BlockErase: bit(w, 15), Overwrite: bit(w, 14), CryptoScramble: bit(w, 13),
		}
	}
	return id, nil
}

// text decodes words of two characters each, the first one in the upper half. Characters that are not printable are
// dropped.
func text(words []byte) string {
	var out []byte
	for i := 0; i+1 < len(words); i += 2 {
		for _, c := range []byte{words[i+1], words[i]} {
			if c >= ' ' && c <= '~' {
				out = append(out, c)
			}
		}
	}
	return strings.TrimSpace(string(out))
}

// eraseTime decodes word 89 or 90: units of two minutes in 8 bits, or with bit 15 in 15 bits. The largest value stands
// for any longer time.
func eraseTime(word uint16) time.Duration {
	units, largest := word&0x00ff, uint16(0x00ff)
	if word&0x8000 != 0 {
		units, largest = word&0x7fff, 0x7fff
	}
	if units == largest {
		return 0
	}
	return time.Duration(units) * 2 * time.Minute
}
