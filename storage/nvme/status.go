package nvme

import "fmt"

// Status is the error of a command that the controller rejected or aborted: the status code type in bits 10:8, the
// status code in bits 7:0, and flags: More in bit 13, Do Not Retry in bit 14.
type Status uint16

// statusTexts are the meanings of the statuses of admin commands (section "Status Code (SC)"). Statuses of invalid
// queues and pointers to data are left out, because the kernel is responsible for these.
var statusTexts = map[Status]string{
	// Generic command status.
	0x001: "invalid command opcode",
	0x002: "invalid field in command",
	0x004: "data transfer error",
	0x005: "command aborted because of a power loss notification",
	0x006: "internal error",
	0x007: "command abort requested",
	0x008: "command aborted because its queue was deleted",
	0x00b: "invalid namespace or format",
	0x00c: "command sequence error",
	0x015: "operation denied",
	0x01c: "sanitize failed",
	0x01d: "sanitize in progress",
	0x020: "namespace is write protected",
	0x021: "command interrupted",
	0x022: "transient transport error",
	0x023: "command prohibited by a lockdown",
	0x024: "media not ready",
	0x080: "LBA out of range",
	0x081: "capacity exceeded",
	0x082: "namespace not ready",
	0x083: "reservation conflict",
	0x084: "format in progress",

	// Command specific status.
	0x109: "invalid log page",
	0x10a: "invalid format",
	0x10b: "firmware activation requires a reset",
	0x110: "firmware activation requires a reset of the NVM subsystem",
	0x111: "firmware activation requires a reset of the controller",
	0x11a: "namespace is not attached",
	0x11d: "device self-test in progress",
	0x123: "sanitize prohibited while a persistent memory region is enabled",

	// Media and data integrity errors.
	0x280: "write fault",
	0x281: "unrecovered read error",
	0x286: "access denied",

	// Path related status.
	0x300: "internal path error",
	0x370: "host pathing error",
	0x371: "command aborted by the host",
}

// Error returns the status as a number, and its meaning if it is known.
func (s Status) Error() string {
	if text := statusTexts[s&0x7ff]; text != "" {
		return fmt.Sprintf("NVMe status 0x%x (%s)", uint16(s), text)
	}
	return fmt.Sprintf("NVMe status 0x%x", uint16(s))
}
