package ata

import (
	"errors"
	"fmt"
)

const opSanitize = 0xb4

// SanitizeMethod is a way in which a drive sanitizes itself.
type SanitizeMethod struct {
	name    string
	feature uint16
	count   uint16
	lba     uint64
}

// failureMode is FAILURE MODE in COUNT: after a failed sanitize, [Drive.ClearSanitizeFailure] makes the drive usable
// again. Without it, only a sanitize that succeeds would.
const failureMode = 1 << 4

// overwritePasses is OVERWRITE PASS COUNT in COUNT.
const overwritePasses = 1

// The methods (ACS-4, tables "CRYPTO SCRAMBLE EXT command inputs", "BLOCK ERASE EXT command inputs" and "OVERWRITE
// EXT command inputs"). LBA is a key: "Cryp", "BkEr", and "OW" followed by the pattern, which is zero. Features and
// keys are SANITIZE_* in hdparm's hdparm.h.
var (
	CryptoScramble = SanitizeMethod{"CRYPTO SCRAMBLE EXT", 0x0011, failureMode, 0x43727970}
	BlockErase     = SanitizeMethod{"BLOCK ERASE EXT", 0x0012, failureMode, 0x426b4572}
	Overwrite      = SanitizeMethod{"OVERWRITE EXT", 0x0014, failureMode | overwritePasses, 0x4f57 << 32}
)

// String returns the name of the command.
func (m SanitizeMethod) String() string { return m.name }

// Bits of COUNT that sanitize commands return (ACS-4, table "SANITIZE STATUS EXT normal outputs"; SANITIZE_FLAG_* in
// hdparm's hdparm.h are bits of its upper half).
const (
	sanitizeCompleted  = 1 << 15
	sanitizeInProgress = 1 << 14
	sanitizeFrozen     = 1 << 13
)

// sanitizeFailed is the error reason of a drive whose last sanitize failed (ACS-4, table "Sanitize Device Error
// Reason"; SANITIZE_ERR_CMD_UNSUCCESSFUL in hdparm's hdparm.h). It is returned in LBA 7:0.
const sanitizeFailed = 1

// sanitizeClear is CLEAR SANITIZE OPERATION FAILED in COUNT of SANITIZE STATUS EXT.
const sanitizeClear = 1

// SanitizeStatus is the state of the Sanitize Device feature set.
type SanitizeStatus struct {
	Completed  bool   // the last sanitize ended without error
	InProgress bool   // the drive accepts only few commands
	Frozen     bool   // a sanitize cannot be started until the next power cycle
	Failed     bool   // the last sanitize failed; the drive rejects reads and writes
	Progress   uint16 // in 1/65536, of a sanitize in progress
}

// Sanitize starts a sanitize. It continues after resets and power cycles.
func (d Drive) Sanitize(m SanitizeMethod) error {
	_, err := d.run(command{
		name: m.name, opcode: opSanitize, extended: true, feature: m.feature, count: m.count, lba: m.lba,
	})
	return err
}

// SanitizeStatus reads the state of the Sanitize Device feature set.
func (d Drive) SanitizeStatus() (SanitizeStatus, error) { return d.sanitizeStatus(0) }

// ClearSanitizeFailure makes a drive usable whose last sanitize failed. Drives reject that after a sanitize without
// FAILURE MODE.
func (d Drive) ClearSanitizeFailure() error {
	status, err := d.sanitizeStatus(sanitizeClear)
	if err == nil && status.Failed {
		return errors.New("SANITIZE STATUS EXT: the failure of the last sanitize was not cleared")
	}
	return err
}

func (d Drive) sanitizeStatus(count uint16) (SanitizeStatus, error) {
	const name = "SANITIZE STATUS EXT"
	r, err := d.run(command{name: name, opcode: opSanitize, extended: true, count: count})
	var rejected *CommandError
	if errors.As(err, &rejected) && rejected.Registers != nil && rejected.Registers.LBA&0xff == sanitizeFailed {
		return SanitizeStatus{Failed: true}, nil
	}
	if err != nil {
		return SanitizeStatus{}, err
	}
	if r == nil || r.Short { // the bits are in the upper half of COUNT
		return SanitizeStatus{}, fmt.Errorf("%s: %w", name, ErrNoRegisters)
	}
	status := SanitizeStatus{
		Completed: r.Count&sanitizeCompleted != 0, InProgress: r.Count&sanitizeInProgress != 0,
		Frozen: r.Count&sanitizeFrozen != 0,
	}
	if status.InProgress {
		status.Progress = uint16(r.LBA)
	}
	return status, nil
}
