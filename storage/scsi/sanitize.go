package scsi

import (
	"encoding/binary"
	"errors"
	"fmt"
)

const (
	opTestUnitReady = 0x00
	opRequestSense  = 0x03
	opInquiry       = 0x12
	opSanitize      = 0x48
	opMaintenanceIn = 0xa3

	actionReportOpcodes = 0x0c // of opMaintenanceIn
	reportOneAction     = 0x02 // REPORTING OPTIONS: one operation code with a service action
)

// SanitizeMethod is a way in which a disk sanitizes itself.
type SanitizeMethod struct {
	name   string
	action byte
	data   []byte // parameter list
}

// The methods (SBC-4, table "SERVICE ACTION field" of the SANITIZE command). Overwrite writes zeros once (SBC-4, table
// "OVERWRITE service action parameter list": INVERT and TEST are zero, OVERWRITE COUNT is 1, INITIALIZATION PATTERN
// LENGTH is 4).
var (
	Overwrite          = SanitizeMethod{"SANITIZE OVERWRITE", 0x01, []byte{1, 0, 0, 4, 0, 0, 0, 0}}
	BlockErase         = SanitizeMethod{"SANITIZE BLOCK ERASE", 0x02, nil}
	CryptographicErase = SanitizeMethod{"SANITIZE CRYPTOGRAPHIC ERASE", 0x03, nil}

	exitFailureMode = SanitizeMethod{"SANITIZE EXIT FAILURE MODE", 0x1f, nil}
)

// String returns the name of the command.
func (m SanitizeMethod) String() string { return m.name }

// Bits of byte 1 of SANITIZE (SBC-4, table "SANITIZE command"). With immediate, the command returns when the sanitize
// has started. With unrestrictedExit (AUSE), [Disk.ExitFailureMode] makes the disk usable again after a failed
// sanitize; without it, only a sanitize that succeeds would.
const (
	immediate        = 1 << 7
	unrestrictedExit = 1 << 5
	actionMask       = 0x1f
)

// cdb returns the command descriptor block of SANITIZE. ZNR is zero, so that the zones of a zoned disk are reset.
func (m SanitizeMethod) cdb() []byte {
	cdb := make([]byte, 10)
	cdb[0], cdb[1] = opSanitize, immediate|unrestrictedExit|m.action
	binary.BigEndian.PutUint16(cdb[7:], uint16(len(m.data)))
	return cdb
}

// Sanitize starts a sanitize. It continues after resets and power cycles.
func (d Disk) Sanitize(m SanitizeMethod) error {
	_, err := d.run(command{name: m.name, cdb: m.cdb(), data: m.data, toDevice: true})
	return err
}

// ExitFailureMode makes a disk usable whose last sanitize failed. Disks reject that after a sanitize without AUSE.
func (d Disk) ExitFailureMode() error { return d.Sanitize(exitFailureMode) }

// Support describes whether a disk supports a sanitize method.
type Support struct {
	Supported bool
	// OtherUnits means that the command affects other logical units of the target, or that the disk does not say
	// whether it does.
	OtherUnits bool
	// Exit means that the disk supports the bits IMMED and AUSE with the method.
	Exit bool
}

// Supports asks the disk whether it supports a method, by REPORT SUPPORTED OPERATION CODES. The error is a
// [CommandError] if the disk does not support that command.
func (d Disk) Supports(m SanitizeMethod) (Support, error) {
	const name = "REPORT SUPPORTED OPERATION CODES"
	data := make([]byte, 8192)
	cdb := make([]byte, 12)
	cdb[0], cdb[1], cdb[2], cdb[3] = opMaintenanceIn, actionReportOpcodes, reportOneAction, opSanitize
	binary.BigEndian.PutUint16(cdb[4:], uint16(m.action))
	binary.BigEndian.PutUint32(cdb[6:], uint32(len(data)))
	data, err := d.run(command{name: name, cdb: cdb, data: data})
	if err != nil {
		return Support{}, err
	}
	support, err := parseSupport(data, m.action)
	if err != nil {
		return Support{}, fmt.Errorf("%s: %w", name, err)
	}
	return support, nil
}

// Values of the report (SPC-5, table "One_command parameter data" and the tables "SUPPORT field" and "MLU field").
const (
	supportMask      = 0x07
	supportUnknown   = 0x00 // the disk cannot tell now
	supportAsDefined = 0x03

	unitsShift = 5 // MLU
	unitsMask  = 0x03
	unitsOne   = 0x01
)

// parseSupport decodes the report of one command. Byte 1 has SUPPORT and MLU, bytes 2 and 3 the length of the usage map
// that follows: the CDB with a bit set for each bit that the disk evaluates.
func parseSupport(data []byte, action byte) (Support, error) {
	if len(data) < 4 {
		return Support{}, fmt.Errorf("got %d bytes, want at least 4", len(data))
	}
	switch data[1] & supportMask {
	case supportUnknown:
		return Support{}, errors.New("the disk cannot tell now whether it supports the command")
	case supportAsDefined:
	default: // not supported, or in a way of the vendor's own
		return Support{}, nil
	}
	usage := data[4:min(len(data), 4+int(binary.BigEndian.Uint16(data[2:])))]
	if len(usage) < 2 || usage[0] != opSanitize || usage[1]&actionMask != action {
		return Support{}, fmt.Errorf("got usage map % x, want that of operation 0x%02x 0x%02x",
			usage[:min(len(usage), 2)], opSanitize, action)
	}
	const bits = immediate | unrestrictedExit
	return Support{
		Supported: true, OtherUnits: data[1]>>unitsShift&unitsMask != unitsOne, Exit: usage[1]&bits == bits,
	}, nil
}

// Readable describes whether blocks can be read after a sanitize, before they are written.
type Readable byte

// The values of the fields WABEREQ and WACEREQ (SBC-4, table "Block Device Characteristics VPD page").
const (
	ReadableUnknown Readable = 0 // the disk does not say
	ReadableAlways  Readable = 1 // without an error
	// The other values mean that reads fail.
)

// Fails reports whether reads fail.
func (r Readable) Fails() bool { return r > ReadableAlways }

// ReadableAfter reads whether blocks can be read after a block erase and after a cryptographic erase.
func (d Disk) ReadableAfter() (blockErase, cryptographicErase Readable, err error) {
	const (
		name       = "INQUIRY, Block Device Characteristics"
		page, size = 0xb1, 252
	)
	data, err := d.run(command{
		name: name, cdb: []byte{opInquiry, 1, page, 0, size, 0}, data: make([]byte, size),
	})
	if err != nil {
		return 0, 0, err
	}
	if len(data) < 8 || data[1] != page || binary.BigEndian.Uint16(data[2:]) < 4 {
		return 0, 0, fmt.Errorf("%s: got % x, want page 0x%02x of at least 8 bytes",
			name, data[:min(len(data), 4)], page)
	}
	return Readable(data[7] >> 6), Readable(data[7] >> 4 & 3), nil
}

// SanitizeState is a disk's report about a sanitize.
type SanitizeState struct {
	InProgress bool   // the disk accepts only few commands
	Failed     bool   // the last sanitize failed; the disk rejects reads and writes
	Progress   uint16 // in 1/65536, of a sanitize in progress
}

// Additional sense codes (SPC-5, table "ASC and ASCQ assignments").
const (
	ascNotReady, ascqSanitizing        = 0x04, 0x1b // LOGICAL UNIT NOT READY, SANITIZE IN PROGRESS
	ascFormatFailed, ascqSanitizeFails = 0x31, 0x03 // SANITIZE COMMAND FAILED
)

// SanitizeState reads the state by TEST UNIT READY: a disk that is ready does not sanitize. The progress is part of its
// sense data, or of REQUEST SENSE's. The error is a [CommandError] if the disk is not ready for another reason.
func (d Disk) SanitizeState() (SanitizeState, error) {
	const name = "TEST UNIT READY"
	_, sense, err := d.send(command{name: name, cdb: []byte{opTestUnitReady, 0, 0, 0, 0, 0}})
	switch {
	case err != nil:
		return SanitizeState{}, err
	case sense == nil || sense.Key == KeyNoSense || sense.Key == KeyRecovered:
		return SanitizeState{}, nil
	case sense.is(keyMediumError, ascFormatFailed, ascqSanitizeFails):
		return SanitizeState{Failed: true}, nil
	case !sense.is(keyNotReady, ascNotReady, ascqSanitizing):
		return SanitizeState{}, &CommandError{name, sense.Key, sense.ASC, sense.ASCQ}
	}
	progress, ok := sense.progress()
	if !ok {
		progress = d.requestedProgress()
	}
	return SanitizeState{InProgress: true, Progress: progress}, nil
}

// requestedProgress returns the progress in the sense data that REQUEST SENSE returns as its data, 0 without one.
func (d Disk) requestedProgress() uint16 {
	const size = 252
	data, err := d.run(command{
		name: "REQUEST SENSE", cdb: []byte{opRequestSense, 0, 0, 0, size, 0}, data: make([]byte, size),
	})
	if err != nil {
		return 0
	}
	sense, err := ParseSense(data)
	if err != nil {
		return 0
	}
	progress, _ := sense.progress()
	return progress
}
