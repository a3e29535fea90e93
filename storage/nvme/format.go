package nvme

import "time"

const opFormat = 0x80

// FormatTimeout is the time limit of [Controller.Format]: large drives that erase every block take hours.
const FormatTimeout = 24 * time.Hour

// FormatErase is the erase of a Format (SES).
type FormatErase uint8

// The erases (figure "Format NVM - Command Dword 10").
const (
	EraseUserData FormatErase = 1
	EraseCrypto   FormatErase = 2 // deletes the key; needs [Identity].FormatsCrypto
)

// Format erases a namespace and keeps its block format, which only a namespace from [Controller.Namespace] has. It
// returns when the erase has ended. The error is the transport's.
func (c Controller) Format(n Namespace, erase FormatErase) error {
	return c.transport.Send(Command{
		Opcode: opFormat, Namespace: n.ID, CDW10: n.formatWord(erase), Timeout: FormatTimeout,
	})
}

// formatWord returns dword 10: the current format of the namespace, and the erase.
func (n Namespace) formatWord(erase FormatErase) uint32 {
	word := uint32(n.format & 0x0f) // LBAFL
	if n.extended {
		word |= 1 << 4 // MSET
	}
	word |= uint32(n.protection&7) << 5    // PI: type
	word |= uint32(n.protection>>3&1) << 8 // PIL: position
	word |= uint32(erase) << 9             // SES
	word |= uint32(n.format>>4) << 12      // LBAFU
	return word
}
