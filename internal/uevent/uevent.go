// Package uevent receives the kernel's messages about devices and their changes.
package uevent

import (
	"bytes"
	"strconv"
	"strings"
)

// Event contains the fields of a message that are used here. Programs with CAP_SYS_ADMIN can send such messages, too:
// what decides more than whether to look at the device must be read from sysfs.
type Event struct {
	Action    string // add, change, remove ...
	Subsystem string
	Path      string // of the device below /sys, for example /devices/virtual/net/lo
	Number    uint64 // sequence number of the message; 0 without a valid one
}

// Parse parses a message (lib/kobject_uevent.c): a header and KEY=VALUE strings, each terminated by a zero byte.
// Strings without "=", such as the header, and other keys are ignored. Of a repeated key the last value is used.
func Parse(message []byte) Event {
	var e Event
	for field := range bytes.SplitSeq(message, []byte{0}) {
		key, value, found := strings.Cut(string(field), "=")
		if !found {
			continue
		}
		switch key {
		case "ACTION":
			e.Action = value
		case "SUBSYSTEM":
			e.Subsystem = value
		case "DEVPATH":
			e.Path = value
		case "SEQNUM":
			number, err := strconv.ParseUint(value, 10, 64)
			if err != nil {
				number = 0
			}
			e.Number = number
		}
	}
	return e
}
