package ata

import (
	"encoding/binary"
	"time"
)

// Commands of the Security feature set (ACS-4, clause 7). They are ATA_CMD_SEC_* in Linux's include/linux/ata.h and
// ATA_OP_SECURITY_* in hdparm's sgio.h.
const (
	opSecuritySetPassword  = 0xf1
	opSecurityUnlock       = 0xf2
	opSecurityErasePrepare = 0xf3
	opSecurityEraseUnit    = 0xf4
	opSecurityDisable      = 0xf6
)

// Password is a password of the Security feature set.
type Password [32]byte

// eraseEnhanced is ERASE MODE in word 0 of the data of SECURITY ERASE UNIT.
const eraseEnhanced = 1 << 1

// passwordData returns the data of a command with the user password (ACS-4, tables "SECURITY SET PASSWORD data
// content", "SECURITY UNLOCK data content", "SECURITY ERASE UNIT data content" and "SECURITY DISABLE PASSWORD data
// content"). Word 0 has flags, words 1 to 16 the password. IDENTIFIER (bit 0) is zero for the user password, as is
// MASTER PASSWORD CAPABILITY (bit 8 of SECURITY SET PASSWORD), so that the master password can also unlock the drive.
// do_set_security in hdparm.c builds the same data.
func passwordData(flags uint16, p Password) []byte {
	data := make([]byte, blockSize)
	binary.LittleEndian.PutUint16(data, flags)
	copy(data[2:], p[:])
	return data
}

// SetPassword sets the user password and enables security. The drive must not be locked or frozen. A former user
// password is not needed.
func (d Drive) SetPassword(p Password) error {
	_, err := d.run(command{
		name: "SECURITY SET PASSWORD", opcode: opSecuritySetPassword, data: passwordData(0, p), toDevice: true,
	})
	return err
}

// Unlock unlocks the drive with the user password until the next power cycle. After five wrong passwords, the drive
// accepts no further one before a power cycle.
func (d Drive) Unlock(p Password) error {
	_, err := d.run(command{
		name: "SECURITY UNLOCK", opcode: opSecurityUnlock, data: passwordData(0, p), toDevice: true,
	})
	return err
}

// DisablePassword disables security. The drive must be unlocked.
func (d Drive) DisablePassword(p Password) error {
	_, err := d.run(command{
		name: "SECURITY DISABLE PASSWORD", opcode: opSecurityDisable, data: passwordData(0, p), toDevice: true,
	})
	return err
}

// SecurityErase erases the drive with the user password, and thereby disables security. It returns when the drive has
// ended the erase, which can take hours.
func (d Drive) SecurityErase(p Password, enhanced bool, timeout time.Duration) error {
	prepare := command{name: "SECURITY ERASE PREPARE", opcode: opSecurityErasePrepare}
	if _, err := d.run(prepare); err != nil {
		return err
	}
	flags := uint16(0)
	if enhanced {
		flags = eraseEnhanced
	}
	_, err := d.run(command{
		name: "SECURITY ERASE UNIT", opcode: opSecurityEraseUnit, data: passwordData(flags, p), toDevice: true,
		timeout: timeout,
	})
	return err
}
