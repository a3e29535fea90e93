package journal

import (
	"fmt"
	"regexp"
)

// firmwareFailure matches the message of Linux (drivers/base/firmware_loader/main.c) for a file that a driver
// requested and that exists neither plain nor compressed. Debian's kernel also logs "firmware: failed to load" for
// each of the two forms; that message does not mean that the request failed.
var firmwareFailure = regexp.MustCompile(`^(\S+) \S+: Direct firmware load for (\S+) failed with error -\d+$`)

// MissingFirmware reports whether a message of the kernel, without priority and time, is about a firmware file that
// does not exist. It returns the file and the driver that requested it, as "FILE (DRIVER)".
func MissingFirmware(message string) (file string, ok bool) {
	match := firmwareFailure.FindStringSubmatch(message)
	if match == nil {
		return "", false
	}
	return fmt.Sprintf("%s (%s)", match[2], match[1]), true
}
