package nvme

import (
	"encoding/binary"
	"fmt"
	"time"
)

const (
	opGetLogPage = 0x02
	opSanitize   = 0x84

	logSanitize      = 0x81
	logSanitizeBytes = 512
)

// SanitizeTimeout is the time limit of [Controller.Sanitize], which does not wait for the end of the sanitize.
const SanitizeTimeout = 10 * time.Minute

// SanitizeCapabilities says which methods of sanitizing a controller supports (SANICAP). It is 0 before NVMe 1.3.
type SanitizeCapabilities uint32

// Supports reports whether the controller supports a method.
func (s SanitizeCapabilities) Supports(m SanitizeMethod) bool { return s&m.capability != 0 }

// SanitizeMethod is a way in which an NVM subsystem sanitizes itself.
type SanitizeMethod struct {
	name           string
	capability     SanitizeCapabilities
	command        uint32 // dword 10
	estimateOffset int    // place of the estimated time in the log
}

// Fields of dword 10 (figure "Sanitize - Command Dword 10").
const (
	actionExitFailure = 1 // SANACT in bits 2:0
	actionBlockErase  = 2
	actionOverwrite   = 3
	actionCryptoErase = 4

	// unrestrictedExit is AUSE: after a failed sanitize, actionExitFailure makes the drive usable again. Without it,
	// only a sanitize that succeeds would.
	unrestrictedExit = 1 << 3

	// onePass is OWPASS: the pattern is written once. 0 stands for 16 passes.
	onePass = 1 << 4
)

// The methods. SanitizeOverwrite writes zeros once. NDAS is not set, so that the drive deallocates the blocks: those
// that it keeps allocated can return errors when they are read.
var (
	SanitizeCrypto    = SanitizeMethod{"crypto erase", 1 << 0, actionCryptoErase | unrestrictedExit, 16}
	SanitizeBlock     = SanitizeMethod{"block erase", 1 << 1, actionBlockErase | unrestrictedExit, 12}
	SanitizeOverwrite = SanitizeMethod{"overwrite", 1 << 2, actionOverwrite | unrestrictedExit | onePass, 8}
)

// String returns the name of the method.
func (m SanitizeMethod) String() string { return m.name }

// Sanitize starts to sanitize the subsystem, with all its namespaces. The sanitize continues after resets and power
// cycles. The error is the transport's.
func (c Controller) Sanitize(m SanitizeMethod) error {
	return c.transport.Send(Command{Opcode: opSanitize, CDW10: m.command, Timeout: SanitizeTimeout})
}

// ExitFailureMode makes a drive usable whose last sanitize failed. Drives reject that after a sanitize without AUSE.
// The error is the transport's.
func (c Controller) ExitFailureMode() error {
	return c.transport.Send(Command{Opcode: opSanitize, CDW10: actionExitFailure, Timeout: commandTimeout})
}

// SanitizeStatus is the state of the last sanitize (figure "Sanitize Status Log Page"). It survives resets and power
// cycles.
type SanitizeStatus struct {
	Progress uint16 // in 1/65536, of a sanitize in progress (SPROG)
	Status   uint16 // SSTAT
	Command  uint32 // dword 10 of the command that started the sanitize (SCDW10)
	page     []byte
}

// States of a sanitize (SSTAT bits 2:0).
const (
	stateCompleted   = 1
	stateInProgress  = 2
	stateFailed      = 3
	stateDeallocated = 4 // completed, and the blocks are deallocated
)

func (s SanitizeStatus) state() uint16 { return s.Status & 7 }

// InProgress reports whether a sanitize is in progress.
func (s SanitizeStatus) InProgress() bool { return s.state() == stateInProgress }

// Failed reports whether the last sanitize failed. The drive may be in failure mode.
func (s SanitizeStatus) Failed() bool { return s.state() == stateFailed }

// Completed reports whether the last sanitize succeeded.
func (s SanitizeStatus) Completed() bool {
	return s.state() == stateCompleted || s.state() == stateDeallocated
}

// Erased reports whether nothing was written since the last sanitize that succeeded, or since the drive was made (GDE).
func (s SanitizeStatus) Erased() bool { return s.Status&(1<<8) != 0 }

// Estimate returns the time that the drive says a method takes, 0 if it does not say.
func (s SanitizeStatus) Estimate(m SanitizeMethod) time.Duration {
	if s.page == nil { // the zero value
		return 0
	}
	seconds := binary.LittleEndian.Uint32(s.page[m.estimateOffset:])
	if seconds == 0xffffffff {
		return 0
	}
	return time.Duration(seconds) * time.Second
}

// IsNewer reports whether s describes a sanitize by a method that started after before was read. If a drive repeats the
// same sanitize, and completes it before it is queried, only Erased shows that, if something was written in between.
func (s SanitizeStatus) IsNewer(before SanitizeStatus, m SanitizeMethod) bool {
	return s.state() != before.state() || s.Erased() && !before.Erased() ||
		s.Command == m.command && before.Command != m.command
}

// SanitizeStatus reads the state of the last sanitize of the subsystem.
func (c Controller) SanitizeStatus() (SanitizeStatus, error) {
	page := make([]byte, logSanitizeBytes)
	err := c.transport.Send(Command{
		Opcode: opGetLogPage, Namespace: AllNamespaces, CDW10: logSanitize | (logSanitizeBytes/4-1)<<16, Data: page,
		Timeout: commandTimeout,
	})
	if err != nil {
		return SanitizeStatus{}, fmt.Errorf("NVMe sanitize status log: %w", err)
	}
	return SanitizeStatus{
		Progress: binary.LittleEndian.Uint16(page), Status: binary.LittleEndian.Uint16(page[2:]),
		Command: binary.LittleEndian.Uint32(page[4:]), page: page,
	}, nil
}
