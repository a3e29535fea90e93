// Package layout names the places in the ramdisk that its builder and PID 1 agree on.
package layout

import (
	"fmt"
	"strconv"
	"strings"
)

// Places in the archive, without the leading "/".
const (
	AboutFile  = "etc/ironroot/image"    // what the image is, near the start of the archive
	MarkerFile = "etc/ironroot/complete" // the last file of the archive
)

// About is what an image says of itself.
type About struct {
	Name     string
	Unpacked int64  // bytes of all files once unpacked
	Kernel   string // release of the kernel the modules belong to, "" = no modules
}

// String returns the text of AboutFile.
func (a About) String() string {
	return fmt.Sprintf("name=%s\nunpacked=%d\nkernel=%s\n", a.Name, a.Unpacked, a.Kernel)
}

// ParseAbout reads the text of AboutFile. What is missing or broken stays zero.
func ParseAbout(text string) About {
	var a About
	for line := range strings.Lines(text) {
		key, value, _ := strings.Cut(strings.TrimSpace(line), "=")
		switch key {
		case "name":
			a.Name = value
		case "unpacked":
			a.Unpacked, _ = strconv.ParseInt(value, 10, 64)
		case "kernel":
			a.Kernel = value
		}
	}
	return a
}
