package iscsi

import "fmt"

// errMessagesLost is the code of an event if the kernel's messages were lost. The kernel has no such code.
const errMessagesLost = 1

// connectionError returns the error of a connection by the kernel's code (enum iscsi_err in scsi/iscsi_if.h).
func connectionError(code uint32) error {
	text := connectionErrors[code]
	if text == "" {
		text = "the kernel reports an error of the connection"
	}
	return fmt.Errorf("%s (code %d)", text, code)
}

var connectionErrors = map[uint32]string{
	errMessagesLost: "messages of the kernel were lost",
	1007:            "target sent a header of a wrong length",
	1008:            "target violated the protocol",
	1011:            "connection failed",
	1013:            "session failed",
	1019:            "sending failed",
	1020:            "target closed the connection",
	1021:            "commands timed out",
	1022:            "target did not answer a ping",
}
